// Command tessera-installer installs and upgrades GPU drivers, node agents and other operands on GPU nodes, and remediates faulted GPUs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tessera-installer:", err)
		os.Exit(1)
	}
}
