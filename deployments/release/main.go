// Command release makes the files of a release without a container engine, and publishes its images and its chart.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/tessera-gpu/tessera/deployments/release/dist"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	switch err := run(ctx, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2) // the flags were printed
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes a release, or publishes the one in a folder.
func run(ctx context.Context, arguments []string) error {
	o := dist.Options{Source: ".", Progress: os.Stdout}
	var publish string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.Version, "version", "", "version of the release, such as v1.2.3")
	flags.StringVar(&o.Registry, "registry", "", "registry and path from which clusters pull the images, such as registry.example.com/tessera")
	flags.StringVar(&o.Out, "out", "dist", "folder of the files; it must be empty")
	flags.StringVar(&o.SBOM, "cyclonedx-gomod", "cyclonedx-gomod", "the program that writes the lists of components")
	flags.StringVar(&publish, "publish", "", "folder of a release: push its images and its chart instead of making a release")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if publish != "" {
		return dist.Publish(ctx, publish, os.Stdout)
	}
	return dist.Write(ctx, o)
}
