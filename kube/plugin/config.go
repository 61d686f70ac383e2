package plugin

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	v1 "gpusched/kube/api/v1"
)

const (
	defaultBinder     = "DefaultBinder"
	defaultPreemption = "DefaultPreemption"
)

// Check says what is wrong with a scheduler's configuration for this plug-in. A mistake here would not be seen otherwise
// before two pods have one device, or pods are ended past their quota and grace.
func Check(c *config.KubeSchedulerConfiguration) error {
	var problems []error
	if len(c.Profiles) != 1 || c.Profiles[0].SchedulerName != v1.SchedulerName {
		return fmt.Errorf("there must be one profile, with schedulerName %s", v1.SchedulerName)
	}
	if c.LeaderElection.LeaderElect && !c.DelayCacheUntilActive {
		problems = append(problems, errors.New("delayCacheUntilActive must be true: only the leader speaks to the engine"))
	}
	plugins := c.Profiles[0].Plugins
	if plugins == nil {
		return errors.Join(append(problems, notEnabled)...)
	}
	if !has(plugins.MultiPoint.Enabled, Name) {
		problems = append(problems, notEnabled)
	}
	for name, set := range map[string]config.PluginSet{defaultBinder: plugins.Bind, defaultPreemption: plugins.PostFilter} {
		if !has(set.Disabled, name) && !has(set.Disabled, "*") && !has(plugins.MultiPoint.Disabled, name) {
			problems = append(problems, fmt.Errorf("plug-in %s must be disabled: %s does its work", name, Name))
		}
	}
	return errors.Join(problems...)
}

var notEnabled = fmt.Errorf("plug-in %s must be enabled in plugins.multiPoint", Name)

func has(plugins []config.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p config.Plugin) bool { return p.Name == name })
}
