// gpu-scheduler-webhook is the admission webhook of GPU claims, a program of its own: it may do far less in a cluster
// than a scheduler.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"gpusched/kube/webhook"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := webhook.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gpu-scheduler-webhook: %v\n", err)
		os.Exit(1)
	}
}
