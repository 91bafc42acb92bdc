// Command tessera-node is the agent of one node: it publishes the node's GPUs as ResourceSlices and
// turns allocated ResourceClaims into devices for containers.
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
		fmt.Fprintln(os.Stderr, "tessera-node:", err)
		os.Exit(1)
	}
}
