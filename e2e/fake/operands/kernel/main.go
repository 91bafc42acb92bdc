// Command kernel gives access to the kernel of a bare fake machine: it loads and unloads modules, as insmod(8) and rmmod(8) do on hardware. It is in
// the folder bin of the machine's folder, and works on that machine wherever the folder is mounted.
//
//	kernel insmod <module> <version>
//	kernel rmmod <module>
//	kernel lsmod
//	kernel runc ...  runc with control groups of Linux 6.14, which have the controllers misc and dmem: in a tree in the place of the hierarchy
//	kernel group    the hook with which runc makes them
//	boot            in a virtual machine, at each boot: a power cycle of the GPUs, which then have the boot ID of the machine's kernel
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
	machine := filepath.Dir(filepath.Dir(program))
	switch {
	case err != nil:
	case filepath.Base(os.Args[0]) == "boot":
		err = boot(machine)
	default:
		err = run(machine, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(status(err))
	}
}

var errUsage = errors.New("usage: kernel insmod <module> <version> | rmmod <module> | lsmod | runc <argument>... | group")

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
	case line == "runc":
		return runc(filepath.Join(machine, "bin/kernel"), args[1:])
	case line == "group" && len(args) == 1:
		return fakegpu.AddGroupOf(machine, os.Stdin, "misc", "dmem")
	}
	return errUsage
}

// boot applies a boot of a virtual machine.
func boot(machine string) error {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	if err := fakegpu.Reboot(machine); err != nil {
		return err
	}
	return errors.Join(fakegpu.SetBootID(machine, string(id)), disguise(fakegpu.SysRoot(machine), "/sys"), showGroups(fakegpu.Hierarchy(machine)))
}

// showGroups shows the control groups of the machine's kernel where the fake sysfs has them.
func showGroups(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/sys/fs/cgroup", folder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the control groups: %w", err)
	}
	return nil
}

// disguise makes the machine's PCI functions that have the addresses of the GPUs look like them: what sysfs shows of a GPU covers what it shows of the
// function. Drivers and the IOMMU see the function.
func disguise(fake, sys string) error {
	files, err := filepath.Glob(filepath.Join(fake, "bus/pci/devices/*/*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		relative, err := filepath.Rel(fake, file)
		if err != nil {
			return err
		}
		shown := filepath.Join(sys, relative)
		if _, err := os.Stat(shown); err != nil || filepath.Base(file) == "config" {
			continue
		}
		if err := unix.Mount(file, shown, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", shown, err)
		}
	}
	return nil
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
