// gpu-scheduler-kube is upstream's kube-scheduler with the plug-in GpuScheduler.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"gpusched/kube/plugin"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))
	command.Use = "gpu-scheduler-kube"
	command.Short = "Schedules pods with GPUs by the engine of gpu-scheduler"
	command.Long = "gpu-scheduler-kube is the scheduler of Kubernetes with one plug-in more: the engine of gpu-scheduler decides\n" +
		"which pod is next, on which node and with which GPUs. --config names a KubeSchedulerConfiguration\n" +
		"(docs/reference/kubernetes.md)."
	run := command.RunE
	command.RunE = func(command *cobra.Command, arguments []string) error {
		if err := check(command); err != nil {
			return err
		}
		return run(command, arguments)
	}
	os.Exit(cli.Run(command))
}

func check(command *cobra.Command) error {
	if flag := command.Flag("version"); flag != nil && flag.Changed {
		return nil
	}
	file := command.Flag("config").Value.String()
	if file == "" {
		return errors.New("--config is missing: it names the scheduler's configuration with the plug-in's arguments")
	}
	config, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	if err := plugin.Check(config); err != nil {
		return fmt.Errorf("--config %s: %w", file, err)
	}
	return nil
}
