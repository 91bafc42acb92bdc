// Command demo shows Tessera to somebody who has just cloned it: it brings a cluster of bare nodes with fake GPUs up on
// this machine, installs Tessera with helm, tells how the nodes become ready, runs every example and prints for each pod what it asked for, what it
// was given and what it sees. It fails, with the reason, when anything is not as the examples promise. `demo upgrade` then
// changes the driver of all nodes and tells how, with one node on which the new driver fails; `demo health` has a GPU fall ill under a
// pod and tells what becomes of both.
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
