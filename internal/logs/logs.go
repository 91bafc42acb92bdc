// Package logs gives commands the flags for logs that all components of Kubernetes have: the level, and text or JSON.
package logs

import (
	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the format json
)

// Add adds the flags to a command, and applies them before it or one of its subcommands runs. Within a process, later runs must have the same flags.
func Add(cmd *cobra.Command) {
	config := logsapi.NewLoggingConfiguration()
	logsapi.AddFlags(config, cmd.PersistentFlags())
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
		return logsapi.ValidateAndApply(config, nil)
	}
}
