// Command tessera-hook is what a container runtime runs when it creates a container with NVIDIA
// devices: the CDI hooks of package hook in one static program, which needs nothing from the host.
package main

import (
	"fmt"
	"os"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
)

func main() {
	if err := hook.Run(os.Args[1:], os.Stdin, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", hook.Program, err)
		os.Exit(1)
	}
}
