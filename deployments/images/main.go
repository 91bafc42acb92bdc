// Command images builds the container images of the product without a container engine, and pushes them to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	switch err := run(ctx, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2) // the flags were printed
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run writes archives, or pushes where a registry is named.
func run(ctx context.Context, arguments []string) error {
	var programs bundle.Programs
	var out string
	to := bundle.Destination{Manifests: "deployments"}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.StringVar(&programs.Node, "node", "", "built tessera-node; built here when empty")
	flags.StringVar(&programs.Hook, "hook", "", "built tessera-hook, static; built here when empty")
	flags.StringVar(&programs.Scheduler, "scheduler", "", "built tessera-scheduler, static; built here when empty")
	flags.StringVar(&programs.Installer, "installer", "", "built tessera-installer, static; built here when empty")
	flags.StringVar(&out, "out", "", "folder of the archives (default $TESSERA_CACHE/images or ~/.cache/tessera/images)")
	flags.StringVar(&to.Registry, "push", "", "registry and path, such as registry.example.com/tessera: push the product's images there instead of writing archives")
	flags.StringVar(&to.Tag, "tag", "dev", "tag of the images that are pushed; that of the scheduler gets the suffix -kubernetes-MINOR")
	flags.StringVar(&to.Overlay, "overlay", "bin/deploy", "folder of the generated values and kustomization, which install the pushed images")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "tessera-images-")
	if err != nil {
		return fmt.Errorf("create a folder for programs: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a leftover is harmless
	if to.Registry != "" {
		programs.Target.Version = to.Tag
	}
	if programs, err = programs.CompleteAll(ctx, ".", folder); err != nil {
		return err
	}
	if to.Registry != "" {
		return push(ctx, programs, to)
	}
	return write(ctx, programs, out)
}

// push prints what was pushed and what to do with it.
func push(ctx context.Context, programs bundle.Programs, to bundle.Destination) error {
	pushed, err := bundle.Push(ctx, programs, to)
	if err != nil {
		return err
	}
	for _, image := range pushed {
		fmt.Println("pushed", image)
	}
	fmt.Printf("install it:\n  helm install tessera deployments/helm/tessera -n tessera-system --create-namespace -f %s\n", filepath.Join(to.Overlay, bundle.ValuesFile))
	fmt.Printf("or, without the installer:\n  kubectl apply -k %s\n", to.Overlay)
	return nil
}

// write prints the path of each archive.
func write(ctx context.Context, programs bundle.Programs, out string) error {
	if out == "" {
		cache, err := cacheFolder()
		if err != nil {
			return err
		}
		out = filepath.Join(cache, "images")
	}
	archives, err := bundle.Write(ctx, out, programs)
	for _, archive := range archives {
		fmt.Println(archive)
	}
	return err
}

func cacheFolder() (string, error) {
	if dir := os.Getenv("TESSERA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(home, ".cache", "tessera"), nil
}
