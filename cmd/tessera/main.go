// Command tessera shows the GPUs of a cluster and their use, and diagnoses, explains and plans. Installed as kubectl-tessera it is the
// kubectl plugin "kubectl tessera".
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
		fmt.Fprintln(output.Messages(os.Stderr), "tessera:", err)
		os.Exit(output.Status(err))
	}
}
