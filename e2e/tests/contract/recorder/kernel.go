package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// needs are the modules that each module of the driver uses.
func needs() map[string][]string {
	gpu := []string{"nvidia"}
	return map[string][]string{
		"nvidia": nil, "nvidia_uvm": gpu, "nvidia_modeset": gpu, "nvidia_peermem": {"nvidia", "ib_core"}, "nvidia_vgpu_vfio": gpu,
		"i2c_core": nil, "ipmi_msghandler": nil, "ipmi_devintf": nil, "video": nil,
	}
}

// locked runs f while no other process changes the modules, and then writes the files that show them.
func locked(f func() error) error {
	lock, err := os.OpenFile(host(".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // ends the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return errors.Join(f(), show())
}

// show writes the use counts and /proc/modules, as the kernel shows them.
func show() error {
	entries, err := os.ReadDir(host("sys/module"))
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		name := entry.Name()
		if _, err := os.Stat(host("sys/module/" + name + "/refcnt")); err != nil {
			continue // built in
		}
		by := users(name)
		refs := len(by) + openBy(name)
		if err := os.WriteFile(host("sys/module/"+name+"/refcnt"), fmt.Appendf(nil, "%d\n", refs), 0o644); err != nil {
			return err
		}
		list := "-"
		if len(by) > 0 {
			list = strings.Join(by, ",") + ","
		}
		fmt.Fprintf(&text, "%s 4096 %d %s Live 0x0000000000000000\n", name, refs, list)
	}
	return os.WriteFile(host("proc/modules"), []byte(text.String()), 0o644)
}

func loaded(module string) bool {
	_, err := os.Stat(host("sys/module/" + module + "/refcnt"))
	return err == nil
}

// users returns the loaded modules that use a module.
func users(module string) []string {
	var by []string
	for user, used := range needs() {
		if slices.Contains(used, module) && loaded(user) {
			by = append(by, user)
		}
	}
	slices.Sort(by)
	return by
}

// openBy returns the number of processes that have a module open: each holds a lock on a file.
func openBy(module string) int {
	files, err := filepath.Glob(host(".open/" + module + "/*"))
	if err != nil {
		return 0
	}
	n := 0
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		if errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			n++
		}
		file.Close() //nolint:errcheck,gosec // opened for reading
	}
	return n
}

// open makes this process a user of a module until it ends.
func open(module string) error {
	name := host(fmt.Sprintf(".open/%s/%d", module, os.Getpid()))
	if err := write(name, ""); err != nil {
		return err
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return locked(func() error { return unix.Flock(fd, unix.LOCK_SH) })
}

// modprobe loads modules as modprobe(8) does: with the parameters of the container's modprobe.d, from the container's files.
func modprobe(args []string) error {
	return locked(func() error {
		for _, arg := range args {
			if strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") {
				continue
			}
			if err := load(strings.ReplaceAll(arg, "-", "_")); err != nil {
				return fmt.Errorf("ERROR: could not insert '%s': %w", arg, errorText{err})
			}
		}
		return nil
	})
}

// errorText is an error in the words of strerror(3), which begin with a capital letter.
type errorText struct{ error }

func (e errorText) Error() string {
	text := e.error.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

func (e errorText) Unwrap() error { return e.error }

func load(module string) error {
	used, known := needs()[module]
	if !known {
		return fmt.Errorf("module not found in directory /lib/modules")
	}
	if loaded(module) {
		return nil
	}
	version := ""
	if strings.HasPrefix(module, "nvidia") {
		var err error
		if version, err = moduleVersion(module); err != nil {
			return err
		}
	}
	for _, m := range used {
		if !loaded(m) {
			return fmt.Errorf("unknown symbols of %s: %w", m, unix.ENOENT)
		}
	}
	if err := compatible(module, version); err != nil {
		return err
	}
	options, _ := os.ReadFile("/etc/modprobe.d/" + strings.ReplaceAll(module, "_", "-") + ".conf") //nolint:errcheck // there need not be any
	if err := write(host("sys/module/"+module+"/parameters"), string(options)); err != nil {
		return err
	}
	if module == "nvidia" {
		if err := initialize(version); err != nil {
			return err
		}
	}
	return write(host("sys/module/"+module+"/refcnt"), "0\n")
}

// initialize is what the module nvidia does when it is loaded: it finds the GPUs, and shows its version.
func initialize(version string) error {
	if !hasGPU() {
		if err := write(host(".kmsg"), "NVRM: No NVIDIA GPU found.\n"); err != nil { // nvidia/nv.c, nvidia_init_module
			return err
		}
		return errors.Join(os.RemoveAll(host("sys/module/nvidia")), unix.ENODEV)
	}
	line := fmt.Sprintf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build\n", version)
	if err := writeAll(version+"\n", host("sys/module/nvidia/version")); err != nil {
		return err
	}
	return write(host("proc/driver/nvidia/version"), line)
}

// compatible refuses a module for other symbols than those of the running kernel: nvidia_peermem must be compiled with the headers of the network
// driver that is loaded.
func compatible(module, version string) error {
	if module != "nvidia_peermem" {
		return nil
	}
	flavor, err := os.ReadFile(host("sys/module/ib_core/srcversion"))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(flavor)); !strings.HasSuffix(version, "+"+got) {
		return fmt.Errorf("disagrees about version of symbol ib_register_peer_memory_client (%s, loaded %s): %w", version, got, unix.EINVAL)
	}
	return nil
}

// hasGPU reports whether the machine has a display or 3D controller of NVIDIA.
func hasGPU() bool {
	files, err := filepath.Glob(host("sys/bus/pci/devices/*/vendor"))
	return err == nil && slices.ContainsFunc(files, func(name string) bool {
		vendor, err := os.ReadFile(name)
		class, classErr := os.ReadFile(filepath.Join(filepath.Dir(name), "class"))
		return err == nil && classErr == nil && string(vendor) == "0x10de\n" && strings.HasPrefix(string(class), "0x03")
	})
}

// dmesg prints what the driver's modules have written into the kernel's log.
func dmesg([]string) error {
	text, err := os.ReadFile(host(".kmsg"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	fmt.Print("usb 1-1: new device\n" + string(text))
	return err
}

// moduleVersion returns the version of a module that the container has for the running kernel. A compiled module must be for this kernel: modinfo(8)
// reads version and vermagic from its section .modinfo. Any other file has its version as its text.
func moduleVersion(module string) (string, error) {
	text, err := os.ReadFile(moduleFile(module))
	if errors.Is(err, os.ErrNotExist) { // where DKMS and the image for Debian have it
		text, err = os.ReadFile(filepath.Join("/lib/modules", kernelRelease(), "updates", strings.ReplaceAll(module, "_", "-")+".ko"))
	}
	if err != nil {
		return "", fmt.Errorf("module not found: %w", err)
	}
	if !strings.HasPrefix(string(text), "\x7fELF") {
		return strings.TrimSpace(string(text)), nil
	}
	_, version, _ := strings.Cut(string(text), "\x00version=")
	_, magic, _ := strings.Cut(string(text), "\x00vermagic=")
	if release, _, _ := strings.Cut(magic, " "); release != kernelRelease() {
		return "", unix.ENOEXEC
	}
	version, _, _ = strings.Cut(version, "\x00")
	return version, nil
}

// moduleFile is where NVIDIA's installer puts a module for the running kernel.
func moduleFile(module string) string {
	return filepath.Join("/lib/modules", kernelRelease(), "kernel/drivers/video", strings.ReplaceAll(module, "_", "-")+".ko")
}

// rmmod unloads modules as rmmod(8) does: one that cannot be unloaded does not keep the others.
func rmmod(args []string) error {
	return locked(func() error {
		var all error
		for _, arg := range args {
			all = errors.Join(all, unload(strings.ReplaceAll(arg, "-", "_")))
		}
		return all
	})
}

func unload(module string) error {
	switch {
	case !loaded(module):
		return fmt.Errorf("ERROR: Module %s is not currently loaded", module)
	case len(users(module)) > 0:
		return fmt.Errorf("ERROR: Module %s is in use by: %s: %w", module, strings.Join(users(module), " "), errBusy)
	case openBy(module) > 0:
		return fmt.Errorf("ERROR: Module %s is in use: %w", module, errBusy)
	}
	if module == "nvidia" {
		if err := os.RemoveAll(host("proc/driver/nvidia")); err != nil {
			return err
		}
	}
	return os.RemoveAll(host("sys/module/" + module))
}

// lsmod prints the loaded modules as lsmod(8) does.
func lsmod([]string) error {
	text, err := os.ReadFile(host("proc/modules"))
	if err != nil {
		return err
	}
	fmt.Println("Module                  Size  Used by")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		fmt.Printf("%-24s %s  %s %s\n", f[0], f[1], f[2], strings.Trim(f[3], "-,"))
	}
	return nil
}

func kernelRelease() string {
	text, err := os.ReadFile(host("proc/sys/kernel/osrelease"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// uname prints the machine's kernel.
func uname(args []string) error {
	if contains(args, "m") {
		fmt.Println("x86_64")
		return nil
	}
	fmt.Println(kernelRelease())
	return nil
}
