// Command driverimage builds driver images for Debian 12 with NVIDIA's real kernel modules, and prints their archives and references.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/tessera-gpu/tessera/e2e/env/driverimage"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	var want driverimage.Want
	flag.StringVar(&want.Version, "version", "", "version of the driver, or its beginning; all that Debian has when empty")
	flag.StringVar(&want.Type, "type", "", "type of the kernel modules, proprietary or open; both when empty")
	flag.StringVar(&want.Kernel, "kernel", "", "release of the kernel of precompiled images; the newest cloud kernel of Debian 12 when empty")
	flag.BoolVar(&want.Precompiled, "precompiled", false, "build only precompiled images")
	flag.Parse()
	images, err := driverimage.Build(ctx, want, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "driverimage:", err)
		os.Exit(1)
	}
	for _, image := range images {
		fmt.Println(image.Archive, driverimage.Name+":"+image.Tag)
	}
}
