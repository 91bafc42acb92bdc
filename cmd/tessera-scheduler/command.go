package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/tessera-gpu/tessera/internal/version"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// command returns kube-scheduler's command with our plugin, our name and our refusals. Everything else,
// flags and configuration file, is kube-scheduler's.
func command() *cobra.Command {
	factory := plugin.NewFactory()
	cmd := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, factory.New))
	cmd.Use = "tessera-scheduler"
	cmd.Long = `The Kubernetes scheduler with the plugin ` + plugin.Name + `, which chooses the node and the GPU, or the slice
of one, that leave the most for the pods to come. Flags and configuration file are those of kube-scheduler.`
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flag("version").Value.String() == "true" {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText(debug.ReadBuildInfo()))
			return err
		}
		if cmd.Flag("config").Value.String() == "" {
			return errNoConfig
		}
		go endIfHung(cmd.Context(), factory.AwaitHang)
		return run(cmd, args)
	}
	return cmd
}

// endIfHung ends the process when the scheduling cycle hangs, after it has logged all goroutines: another replica takes the lease over. kube-scheduler's
// own end waits for the cycle.
func endIfHung(ctx context.Context, awaitHang func(context.Context) error) {
	if err := awaitHang(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "The scheduler ends, so that it is restarted and another replica leads. Report the goroutines below")
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// errNoConfig is the refusal to start as a scheduler that works without the plugin.
var errNoConfig = errors.New("--config is not set, and without it the plugin " + plugin.Name +
	" is in no profile; use one of the files config.yaml in deployments/scheduler")

// versionText returns the versions of the program and of the kube-scheduler that it contains.
func versionText(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "tessera-scheduler unknown"
	}
	kubernetes := "unknown"
	for _, module := range info.Deps {
		if module.Path == "k8s.io/kubernetes" {
			kubernetes = module.Version
		}
	}
	return fmt.Sprintf("tessera-scheduler %s %s, kube-scheduler %s", version.Release(info), info.GoVersion, kubernetes)
}
