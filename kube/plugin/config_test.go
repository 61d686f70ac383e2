package plugin

import (
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

func good() *config.KubeSchedulerConfiguration {
	set := func(name string) config.PluginSet { return config.PluginSet{Disabled: []config.Plugin{{Name: name}}} }
	c := &config.KubeSchedulerConfiguration{DelayCacheUntilActive: true, Profiles: []config.KubeSchedulerProfile{{
		SchedulerName: "gpu-scheduler", Plugins: &config.Plugins{
			MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: Name}}},
			Bind:       set(defaultBinder), PostFilter: set(defaultPreemption)}}}}
	c.LeaderElection.LeaderElect = true
	return c
}

func TestAConfigurationThatWouldBreakAPromiseIsRefused(t *testing.T) {
	if err := Check(good()); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*config.KubeSchedulerConfiguration){
		"one profile":           func(c *config.KubeSchedulerConfiguration) { c.Profiles[0].SchedulerName = "default-scheduler" },
		"delayCacheUntilActive": func(c *config.KubeSchedulerConfiguration) { c.DelayCacheUntilActive = false },
		"must be enabled":       func(c *config.KubeSchedulerConfiguration) { c.Profiles[0].Plugins.MultiPoint.Enabled = nil },
		defaultBinder:           func(c *config.KubeSchedulerConfiguration) { c.Profiles[0].Plugins.Bind.Disabled = nil },
		defaultPreemption:       func(c *config.KubeSchedulerConfiguration) { c.Profiles[0].Plugins.PostFilter.Disabled = nil },
	} {
		c := good()
		spoil(c)
		if err := Check(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
