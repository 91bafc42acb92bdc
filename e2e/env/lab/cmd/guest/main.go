// Command guest is the first process of a lab machine. The lab starts it; it is of no use by hand.
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

// run takes the machine's folder; a second argument means that this is the second life. Standard input carries the spec, file 3 the word that the machine is up.
func run(program string, args []string) error {
	switch len(args) {
	case 1:
		return guest.Enter(program, args[0], "boot")
	case 2:
		const ready = 3
		unix.CloseOnExec(ready) // no service may hold it open
		return guest.Run(args[0], os.Stdin, os.NewFile(ready, "ready"))
	default:
		return errors.New("usage: guest FOLDER < SPEC")
	}
}
