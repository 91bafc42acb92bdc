package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/internal/logs"
	"github.com/tessera-gpu/tessera/internal/scrape"
	"github.com/tessera-gpu/tessera/internal/version"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// command returns the command line. Without a subcommand the agent runs.
func command() *cobra.Command {
	c := defaults()
	root := &cobra.Command{
		Use:           "tessera-node",
		Short:         "The node agent of Tessera",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := c.load()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c)
		},
	}
	logs.Add(root)
	c.addFlags(root.PersistentFlags())
	root.AddCommand(readyCommand(&c), liveCommand(&c), metricsCommand(&c), resizeCommand(&c), gatherCommand(&c), mpsCommand(&c), hostCommand(), discoverCommand(&c), validateCommand(), versionCommand())
	return root
}

func readyCommand(c *config) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Check that the running agent is registered with kubelet and has published its devices",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := query(cmd.Context(), c.socket, readyPath)
			return err
		},
	}
}

func liveCommand(c *config) *cobra.Command {
	return &cobra.Command{
		Use:   "live",
		Short: "Check that the running agent does not hang",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := query(cmd.Context(), c.socket, livePath)
			return err
		},
	}
}

func metricsCommand(c *config) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the metrics of the running agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := query(cmd.Context(), c.socket, scrape.Path)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func resizeCommand(c *config) *cobra.Command {
	var r limiter.Resize
	cmd := &cobra.Command{
		Use:   "resize --claim UID --bytes N [--request NAME]",
		Short: "Change the GPU memory limit of a claim that the running agent has prepared, for tessera shares resize; prints the result as JSON",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := json.Marshal(r)
			if err != nil {
				return err
			}
			text, err := call(cmd.Context(), c.socket, http.MethodPost, resizePath, bytes.NewReader(body))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVar(&r.Claim, "claim", "", "the UID of the claim")
	cmd.Flags().StringVar(&r.Request, "request", "", "the request of the claim; empty if only one has shares")
	cmd.Flags().Uint64Var(&r.Bytes, "bytes", 0, "the limit of each container for each share")
	return cmd
}

func gatherCommand(c *config) *cobra.Command {
	return &cobra.Command{
		Use:   "gatherinfo",
		Short: "Print the hardware of this machine as JSON; needs a driver, but no cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := c.load()
			if err != nil {
				return err
			}
			facts, err := gather(cmd.Context(), c)
			if err != nil {
				return err
			}
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(facts)
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// build is the build information of the program; its fields can be empty.
type build struct{ version, revision, toolchain string }

func buildInfo() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{version: "unknown"}
	}
	return build{version: version.Release(info), revision: version.Revision(info), toolchain: info.GoVersion}
}

// versionText returns the version as text for the output.
func versionText() string {
	b := buildInfo()
	return strings.TrimSpace(b.version + " " + b.toolchain)
}
