package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/cmd/tessera/bundle"
	"github.com/tessera-gpu/tessera/cmd/tessera/check"
	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/cmd/tessera/explain"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/migrate"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/plan"
	"github.com/tessera-gpu/tessera/cmd/tessera/version"
)

// pluginPrefix begins the file names of kubectl's plugins.
const pluginPrefix = "kubectl-"

// command returns the root command. program is the path by which the program was called: as kubectl's plugin, the help names the commands
// in the form of kubectl.
func command(program string) *cobra.Command {
	var flags cluster.Flags
	root := &cobra.Command{
		Use:           "tessera",
		Short:         "NVIDIA GPUs on Kubernetes: inventory, use, diagnosis, scheduling and upgrades",
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{},
	}
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if plugin, is := strings.CutPrefix(name, pluginPrefix); is {
		root.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl " + strings.ReplaceAll(plugin, "_", "-")
	}
	root.SetErr(output.Messages(os.Stderr))
	flags.Add(root.PersistentFlags())
	root.AddCommand(
		gpus.Command(&flags), doctor.Command(&flags), claims.Command(&flags), explain.Command(&flags),
		check.Command(), migrate.Command(), plan.Command(&flags), bundle.Command(&flags), version.Command(&flags))
	return root
}
