// Package shares implements the verb shares, which changes the memory limits of shares in use.
package shares

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shares",
		Short: "Change the memory limits of shares in use",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(resizeCommand(flags))
	return cmd
}

// request is one call of resize.
type request struct {
	// claim and request name the shares. request is empty if only one of the claim has shares.
	claim, request string
	bytes          uint64
	// runner runs the command in the agent, by default that of the cluster.
	runner cluster.Runner
	// out receives the result, errOut warnings.
	out, errOut io.Writer
}

func resizeCommand(flags *cluster.Flags) *cobra.Command {
	var name, memory string
	cmd := &cobra.Command{
		Use:   "resize CLAIM --memory SIZE",
		Short: "Change what the running containers of a claim can allocate",
		Long: `Change how much GPU memory each container of a claim can allocate for each of its shares, while it runs.

The limit can be lowered, unless a container has allocated more, and raised up to memoryLimit in the claim's
parameters, or what the claim requests. It is in effect until the claim is released or the node reboots. Memory above
the request is not reserved: other claims can get it, and then an allocation below the limit fails.

The node's agent changes the limit; this requires permission for pods/exec in Tessera's namespace. Only shares with
the attribute memoryEnforced: hard have limits; tessera gpus --usage shows them.`,
		Example:           "  tessera shares resize notebook --memory 6Gi\n  tessera shares resize train --request small --memory 12Gi -n team-a",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: flags.Complete(claims.Names),
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes, err := params.ParseMemory(memory)
			if err != nil {
				return fmt.Errorf("--memory %w", err)
			}
			c, err := flags.ConnectSupported()
			if err != nil {
				return err
			}
			r := request{claim: args[0], request: name, bytes: bytes, runner: c.Runner(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			return r.run(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&memory, "memory", "", "what each container can allocate for each share, such as 6Gi")
	cmd.Flags().StringVar(&name, "request", "", "the request of the claim; needed if several have shares")
	_ = cmd.MarkFlagRequired("memory")
	return cmd
}
