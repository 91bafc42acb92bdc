// Command recorder replaces the programs that the entry points of NVIDIA's driver images call, in the containers of package machine. It is installed
// under the name of each program, records its calls, and changes the simulated kernel, package repositories and driver like the program that it
// replaces. As `recorder node` and `recorder container` it is the first process of a machine and of a container.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptor is the descriptor of the machine's root in every process of a container. It is how a program reaches the kernel, whatever its own root.
const descriptor = 200

// host returns a path of the machine.
func host(path string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", descriptor, path) }

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "recorder" && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if err := run(name, args); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// program is the replacement of a program. It runs with the arguments of the call.
type program func(args []string) error

func run(name string, args []string) error {
	switch name {
	case "node":
		return node(args)
	case "container":
		return container(args)
	case "kernel": // as package unload runs it
		if err := rmmod(args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitStatus(err))
		}
		return record("delete_module", args[1:])
	case "selinux":
		return unix.Mount("selinuxfs", filepath.Join(args[0], "root/sys/fs/selinux"), "tmpfs", 0, "")
	case "settle":
		return locked(func() error { return nil })
	case "use":
		return use(args)
	}
	replacement, found := programs()[name]
	if !found {
		return fmt.Errorf("no replacement for this program")
	}
	if err := record(name, args); err != nil {
		return err
	}
	return replacement(args)
}

// programs are the replacements, by name.
func programs() map[string]program {
	nothing := func([]string) error { return nil }
	all := map[string]program{
		"modprobe": modprobe, "rmmod": rmmod, "lsmod": lsmod, "dmesg": dmesg,
		"mount": unchanged("mount"), "umount": unchanged("umount"), "sleep": pause, "uname": uname, "pgrep": pgrep,
		"apt-get": aptGet, "apt-cache": aptCache, "dpkg": dpkg, "dnf": dnf, "yum": dnf, "rpm": rpm, "file": fileType,
		"nvidia-run": runFile, "nvidia-installer": installer, "mkprecompiled": mkprecompiled, "make": compile, "ld": link, "strip": strip,
		"extract-vmlinux": extractVmlinux, "strings": copyInput,
		"nvidia-smi": smi, "nvidia-persistenced": daemon("nvidia"), "nvidia-gridd": daemon("nvidia"), "nvidia-vgpud": vgpud,
		"nvidia-vgpu-mgr": foreground("nvidia"), "nv-fabricmanager": daemon("nvidia"), "sriov-manage": sriovManage,
	}
	for _, name := range []string{"apt-mark", "depmod", "chcon", "update-ca-certificates"} {
		all[name] = nothing
	}
	return all
}

// call is a record of one call.
type call struct {
	Container string   `json:"container"`
	Program   string   `json:"program"`
	Args      []string `json:"args,omitempty"`
	// At is the line of the entry point, as file:line.
	At string `json:"at,omitempty"`
}

// record appends a call to the machine's log.
func record(name string, args []string) error {
	line, err := json.Marshal(call{Container: os.Getenv("CONTRACT_CONTAINER"), Program: name, Args: args, At: os.Getenv("CONTRACT_AT")})
	if err != nil {
		return err
	}
	log, err := os.OpenFile(host(".log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // appended in one write
	_, err = log.Write(append(line, '\n'))
	return err
}

// contains reports whether any argument contains a text.
func contains(args []string, text string) bool {
	for _, arg := range args {
		if strings.Contains(arg, text) {
			return true
		}
	}
	return false
}

// write writes a file and its folders.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o755)
}

// writeAll writes files with a text.
func writeAll(text string, paths ...string) error {
	for _, path := range paths {
		if err := write(path, text); err != nil {
			return err
		}
	}
	return nil
}

// exitStatus is the error number of a system call.
func exitStatus(err error) int {
	if errors.Is(err, errBusy) {
		return int(unix.EBUSY)
	}
	return 1
}
