// Command kernel gives access to the kernel of a bare fake machine: it loads and unloads modules, as insmod(8) and rmmod(8) do on hardware. It is in
// the folder bin of the machine's folder, and works on that machine wherever the folder is mounted.
//
//	kernel insmod <module> <version>
//	kernel rmmod <module>
//	kernel lsmod
//
// Its exit status is the error number of the system call that it replaces, EBUSY (16) for a module that is in use.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func main() {
	program, err := os.Executable()
	if err == nil {
		err = run(filepath.Dir(filepath.Dir(program)), os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(status(err))
	}
}

var errUsage = errors.New("usage: kernel insmod <module> <version> | rmmod <module> | lsmod")

func run(machine string, args []string) error {
	switch line := strings.Join(args[:min(1, len(args))], ""); {
	case line == "insmod" && len(args) == 3:
		return fakegpu.Insmod(machine, fakegpu.Module(args[1]), args[2])
	case line == "rmmod" && len(args) == 2:
		return fakegpu.Rmmod(machine, fakegpu.Module(args[1]))
	case line == "lsmod" && len(args) == 1:
		loaded, err := fakegpu.Modules(machine)
		for _, module := range loaded {
			fmt.Println(module)
		}
		return err
	}
	return errUsage
}

// status is the exit status of an error.
func status(err error) int {
	var number syscall.Errno
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return int(unix.EBUSY)
	case errors.As(err, &number):
		return int(number)
	}
	return 1
}
