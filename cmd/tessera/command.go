package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tessera-gpu/tessera/cmd/tessera/bundle"
	"github.com/tessera-gpu/tessera/cmd/tessera/check"
	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/defrag"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/cmd/tessera/explain"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/migrate"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/quota"
	"github.com/tessera-gpu/tessera/cmd/tessera/remediation"
	"github.com/tessera-gpu/tessera/cmd/tessera/shares"
	"github.com/tessera-gpu/tessera/cmd/tessera/status"
	"github.com/tessera-gpu/tessera/cmd/tessera/template"
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
	root.SetUsageFunc(usage(root.UsageFunc()))
	root.AddCommand(
		gpus.Command(flags), claims.Command(flags), quota.Command(flags), status.Command(flags), doctor.Command(flags), explain.Command(flags), defrag.Command(flags),
		upgrade.Command(flags), remediation.Command(flags), shares.Command(flags), check.Command(), migrate.Command(), template.Command(), bundle.Command(flags), version.Command(flags),
		optionsCommand())
	return root
}

// isOffline reports whether the verb connects to no cluster.
func isOffline(verb *cobra.Command) bool {
	offline := []string{"check", "migrate", "template", "options", "completion", "help"}
	return slices.Contains(offline, verb.Name()) || slices.Contains(offline, verb.Parent().Name())
}

// usage returns a function that writes the usage of a verb as cobra does, without the flags that all verbs have, for which it names the verb options.
// Cobra's templates are not used: with them the linker keeps every exported method, which adds 30 MB to the program.
func usage(standard func(*cobra.Command) error) func(*cobra.Command) error {
	return func(verb *cobra.Command) error {
		if !verb.HasParent() {
			return standard(verb)
		}
		hide(verb.Root().PersistentFlags(), true)
		defer hide(verb.Root().PersistentFlags(), false)
		if err := standard(verb); err != nil || verb.HasAvailableSubCommands() || isOffline(verb) {
			return err
		}
		_, err := fmt.Fprintf(verb.OutOrStderr(), "\nUse \"%s options\" for the flags that select the cluster, the user and the namespace.\n", verb.Root().DisplayName())
		return err
	}
}

// hide sets whether the help lists the flags.
func hide(flags *pflag.FlagSet, hidden bool) {
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden })
}

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
