// Command guest is the first process of a lab machine. Only the lab starts it.
package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/guest"
)

func main() {
	if err := run(os.Args[0], os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run takes the machine's folder; a second argument selects the second stage. Standard input carries the spec. File 3
// receives the message that the machine is up. In a virtual machine, `guest probe PROBE` returns when a service is ready.
func run(program string, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "probe":
		return guest.Probe(args[1])
	case len(args) == 1:
		return guest.Enter(program, args[0], "boot")
	case len(args) == 2:
		const ready = 3
		unix.CloseOnExec(ready) // services must not inherit it
		return guest.Run(args[0], os.Stdin, os.NewFile(ready, "ready"))
	default:
		return errors.New("usage: guest FOLDER < SPEC")
	}
}
