// Command ratios compares the figures of two runs of benches, each as a ratio to its peer in the same run, and fails if one has become worse.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2) // the flags were printed
	case err != nil:
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("ratios", flag.ContinueOnError)
	most := flags.Float64("most", 1.3, "factor by which a ratio may be worse")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: ratios [flags] BEFORE AFTER, two folders with the files of bench/out") //nolint:errcheck // usage is for the eye
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		flags.Usage()
		return flag.ErrHelp
	}
	changes, err := report.Compare(flags.Arg(0), flags.Arg(1))
	if err != nil {
		return err
	}
	worse, err := report.PrintChanges(out, changes, *most)
	if err != nil {
		return err
	}
	if len(worse) > 0 {
		return fmt.Errorf("worse by more than %.2f: %s", *most, strings.Join(worse, "; "))
	}
	return nil
}
