// agentprobe runs the node agent's own code on the GPUs of this machine, without a cluster: it reads and watches them, and prepares a claim with the agent
// program, an API server on loopback and a client in the place of kubelet. It changes no setting of a GPU.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "agentprobe:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "agentprobe", SilenceUsage: true, SilenceErrors: true}
	roots := v1alpha1.Default().Roots
	root.PersistentFlags().StringVar(&roots.Driver, "driver-root", "", "root of the driver's files; empty to find it as the agent does")
	root.PersistentFlags().StringVar(&roots.Dev, "dev-root", "/", "folder whose subfolder dev has the device nodes")
	root.PersistentFlags().StringVar(&roots.Proc, "proc-root", roots.Proc, "path of procfs")
	root.PersistentFlags().StringVar(&roots.Sys, "sys-root", roots.Sys, "path of sysfs")
	root.AddCommand(lookCommand(&roots), eventsCommand(&roots), claimCommand(&roots))
	return root
}

// withSession calls f with a session of the driver that is installed.
func withSession(ctx context.Context, r v1alpha1.Roots, f func(*nvml.Session) error) error {
	roots := driverroot.Roots{Host: r.Host, Proc: r.Proc, Sys: r.Sys, Driver: r.Driver, Dev: r.Dev}
	session := nvml.New(nvml.Config{Library: roots.Library, SysRoot: r.Sys})
	if err := session.Reopen(ctx); err != nil {
		return err
	}
	defer session.Close() //nolint:contextcheck // it also closes after ctx has ended
	return f(session)
}

func printJSON(value any) error {
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	return out.Encode(value)
}

var errNoGPU = errors.New("NVML lists no GPU")
