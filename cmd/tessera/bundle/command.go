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
		Short: "Collect objects, logs and metrics for troubleshooting in one archive",
		Long: `Collect ResourceSlices, DeviceClasses, claims and templates, pods with claims, events, nodes, policies, taint
rules, Tessera's objects and logs, the output of doctor, and the agents' metrics and hardware information in one
compressed archive.

No Secret is read. Environment values of pods other than Tessera's, and kubectl's last-applied annotations, are
left out. Names, labels, images and commands are included: review the archive before you send it. Parts that
could not be collected are listed in errors.txt in the archive.`,
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
			b := collector{cluster: c, runner: c.Runner(), logLines: lines, progress: cmd.ErrOrStderr()}
			if file == "-" {
				return b.write(cmd.Context(), cmd.OutOrStdout(), name, now)
			}
			return b.save(cmd.Context(), file, name, now)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, - for standard output (default tessera-support-<time>.tar.gz)")
	cmd.Flags().Int64Var(&lines, "log-lines", 20000, "number of lines to collect of each log, from its end")
	return cmd
}

// save writes the archive to a new file; an incomplete file is removed.
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

// write writes the archive. It fails when the API server is not reachable.
func (c *collector) write(ctx context.Context, out io.Writer, name string, at time.Time) error {
	if _, err := c.cluster.Client.Discovery().ServerVersion(); err != nil {
		return cluster.ExplainError("read the API server's version", err)
	}
	namespace, err := c.cluster.SystemNamespace(ctx)
	if err != nil {
		return err
	}
	c.namespace = namespace
	c.archive = newArchive(out, name, at)
	if err := c.collect(ctx); err != nil {
		return errors.Join(err, c.archive.close())
	}
	if err := c.archive.close(); err != nil {
		return err
	}
	if n := len(c.archive.failed); n > 0 {
		incomplete := "1 part is incomplete"
		if n > 1 {
			incomplete = fmt.Sprintf("%d parts are incomplete", n)
		}
		_, err := fmt.Fprintf(c.progress, "\n%s:\n%s\n", incomplete, strings.Join(c.archive.failed, "\n"))
		return err
	}
	return nil
}
