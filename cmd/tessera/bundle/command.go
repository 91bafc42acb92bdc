package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var file string
	var lines int64
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what is needed to find out what is wrong, in one archive",
		Long: `Collect slices, classes, claims, templates, pods with claims, events, nodes, policies, taint rules, Tessera's
own objects and logs, what the doctor says, the agents' metrics and what they see of their hardware, in one
compressed archive.

No Secret is read. The environment of pods that are not Tessera's, and kubectl's copies of manifests, are left
out; names, labels, images and commands are not: look at the archive before you send it. What you may not see
is missing, and errors.txt in the archive says so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			name := "tessera-support-" + now.Format("20060102T150405Z")
			if file == "" {
				file = name + ".tar.gz"
			}
			b := collector{cluster: c, runner: execution{c}, logLines: lines, progress: cmd.ErrOrStderr()}
			if file == "-" {
				return b.write(cmd.Context(), cmd.OutOrStdout(), name, now)
			}
			return b.save(cmd.Context(), file, name, now)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, - for the standard output; by default tessera-support-<time>.tar.gz")
	cmd.Flags().Int64Var(&lines, "log-lines", 20000, "how many of the last lines of each log are taken")
	return cmd
}

// save writes the archive into a file, which must not exist; a half one is removed.
func (c *collector) save(ctx context.Context, file, name string, at time.Time) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if err := errors.Join(c.write(ctx, out, name, at), out.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	_, err = fmt.Fprintf(c.progress, "\nWrote %s.\n", file)
	return err
}

// write writes the archive. A cluster that does not answer at all is an error.
func (c *collector) write(ctx context.Context, out io.Writer, name string, at time.Time) error {
	if _, err := c.cluster.Client.Discovery().ServerVersion(); err != nil {
		return cluster.Explain("ask the API server for its version", err)
	}
	c.archive = newArchive(out, name, at)
	if err := c.collect(ctx); err != nil {
		return errors.Join(err, c.archive.close())
	}
	if err := c.archive.close(); err != nil {
		return err
	}
	if n := len(c.archive.failed); n > 0 {
		_, err := fmt.Fprintf(c.progress, "\n%d things could not be had in full:\n%s\n", n, strings.Join(c.archive.failed, "\n"))
		return err
	}
	return nil
}
