// Command tessera shows what GPUs a cluster has and who uses them, and helps whoever looks after them. As
// kubectl-tessera in the PATH it is the plugin "kubectl tessera".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command(os.Args[0]).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tessera:", err)
		os.Exit(output.Status(err))
	}
}
