package main

import (
	"fmt"
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
	"github.com/tessera-gpu/tessera/cmd/tessera/quota"
	"github.com/tessera-gpu/tessera/cmd/tessera/remediation"
	"github.com/tessera-gpu/tessera/cmd/tessera/status"
	"github.com/tessera-gpu/tessera/cmd/tessera/upgrade"
	"github.com/tessera-gpu/tessera/cmd/tessera/version"
)

// pluginPrefix begins the file names of kubectl's plugins.
const pluginPrefix = "kubectl-"

// command returns the root command. program is the path by which the program was called: as kubectl's plugin, the help names the commands
// in the form of kubectl.
func command(program string) *cobra.Command {
	flags := cluster.NewFlags()
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
	flags.CompleteFlags(root)
	// Every verb has the flags of kubectl. Its help names the command that lists them.
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), globalFlags, ""))
	root.AddCommand(
		gpus.Command(flags), status.Command(flags), quota.Command(flags), doctor.Command(flags), claims.Command(flags), explain.Command(flags), remediation.Command(flags), upgrade.Command(flags), bundle.Command(flags),
		version.Command(flags))
	for _, verb := range root.Commands() {
		verb.SetUsageTemplate(root.UsageTemplate() + optionsHint)
	}
	root.AddCommand(check.Command(), migrate.Command(), optionsCommand())
	return root
}

// globalFlags is the part of cobra's usage template with the flags of the root command.
const globalFlags = `{{if .HasAvailableInheritedFlags}}

Global Flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}`

// optionsHint ends the help of the verbs that connect to a cluster.
const optionsHint = `{{if not .HasAvailableSubCommands}}
Use "{{.Root.DisplayName}} options" for the flags that select the cluster, the user and the namespace.
{{end}}`

// optionsCommand returns the verb options.
func optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that select the cluster, the user and the namespace",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), "The following flags can be passed to any command:\n\n", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}
