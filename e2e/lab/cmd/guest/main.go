// Command guest is the first process of a lab machine. The lab starts it; it is of no use by hand.
package main

import (
	"fmt"
	"os"

	"github.com/tessera-gpu/tessera/e2e/lab/guest"
)

func main() {
	// Argument: the machine's folder. Standard input: its spec. File 3: where to say that the machine is up.
	if err := guest.Run(os.Args[1], os.Stdin, os.NewFile(3, "ready")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
