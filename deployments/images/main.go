// Command images builds the container images of the product and of its tests, without a container engine or a registry.
package main

import (
	"context"
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
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run prints the path of each archive.
func run(ctx context.Context) error {
	var programs bundle.Programs
	var out string
	flag.StringVar(&programs.Node, "node", "", "built tessera-node; built here when empty")
	flag.StringVar(&programs.Hook, "hook", "", "built tessera-hook, static; built here when empty")
	flag.StringVar(&out, "out", "", "folder of the archives (default $TESSERA_CACHE/images or ~/.cache/tessera/images)")
	flag.Parse()
	if out == "" {
		cache, err := cacheFolder()
		if err != nil {
			return err
		}
		out = filepath.Join(cache, "images")
	}
	folder, err := os.MkdirTemp("", "tessera-images-")
	if err != nil {
		return fmt.Errorf("make a folder for programs: %w", err)
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a leftover is harmless
	if programs, err = programs.Complete(ctx, ".", folder); err != nil {
		return err
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
