// Command demo shows Tessera on one machine.
//
// `demo up` starts a cluster of bare nodes with fake GPUs, installs Tessera with helm, prints the phases of the nodes until all are
// ready, and runs every example. For each pod it prints the requests, the allocated devices and the devices reported by the
// container. It returns an error if a result differs from the expectation in an example's annotation.
//
// `demo upgrade` changes the driver of all nodes and prints each step; on the last node of the plan the new driver fails and is
// rolled back. `demo health` injects an XID into a GPU in use and prints its remediation. `demo down` removes the cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: demo up | upgrade | health | down")

func run(ctx context.Context, args []string) error {
	folder := filepath.Join(lab.Base, "demo")
	if len(args) != 1 {
		return errUsage
	}
	switch args[0] {
	case "up":
		return up(ctx, folder)
	case "upgrade":
		return upgrade(ctx, folder)
	case "health":
		return health(ctx, folder)
	case "down":
		return lab.Down(ctx, folder)
	}
	return errUsage
}
