package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// network returns an error if the container cannot reach a package repository. The machine's file .network names what it needs: a proxy variable, or a
// file in one of the folders that the package managers read. Without the file every repository is reached.
func network() error {
	text, err := os.ReadFile(host(".network"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	want := strings.TrimSpace(string(text))
	if strings.HasPrefix(want, "/") {
		files, err := filepath.Glob(want)
		if err == nil && len(files) > 0 {
			return nil
		}
		return fmt.Errorf("no package repository is reached: %s does not exist", want)
	}
	if os.Getenv(want) != "" {
		return nil
	}
	return fmt.Errorf("no package repository is reached: %s is not set", want)
}

// aptGet is apt-get. With the file .superseded of the machine, the archive has only the packages of a newer kernel.
func aptGet(args []string) error {
	if err := network(); err != nil {
		return err
	}
	kernel, version := kernelRelease(), driverVersion()
	if contains(args, "download") {
		return write(args[len(args)-1]+".deb", "")
	}
	for _, arg := range args {
		switch {
		case strings.HasPrefix(arg, "linux-headers-"):
			if _, err := os.Stat(host(".superseded")); err == nil {
				return fmt.Errorf("unable to locate package %s", arg)
			}
		case strings.HasPrefix(arg, "linux-modules-nvidia-"):
			if !strings.HasSuffix(arg, kernel) {
				return fmt.Errorf("unable to locate package %s for %s", arg, kernel)
			}
			if err := os.MkdirAll(filepath.Join("/lib/modules", kernel, "kernel"), 0o755); err != nil {
				return err
			}
			if err := installModules(version, "nvidia_uvm", "nvidia_modeset", "nvidia_peermem"); err != nil {
				return err
			}
		case strings.HasPrefix(arg, "nvidia-utils-"):
			if err := installUserspace(version); err != nil {
				return err
			}
		}
	}
	return nil
}

// aptCache is apt-cache show for the headers of the running kernel.
func aptCache(args []string) error {
	kernel := kernelRelease()
	if args[len(args)-1] != "linux-headers-"+kernel {
		return fmt.Errorf("no package %v", args)
	}
	version := strings.TrimSuffix(kernel, "-generic")
	fmt.Printf("Package: linux-headers-%s\nVersion: %s.63\n", kernel, version)
	return nil
}

// dpkg unpacks a package with the kernel and its modules.
func dpkg([]string) error {
	kernel := kernelRelease()
	return writeAll("", "lib/modules/"+kernel+"/modules.order", "lib/modules/"+kernel+"/kernel/built-in", "boot/vmlinuz-"+kernel)
}

// dnf is dnf and yum.
func dnf(args []string) error {
	if contains(args, "config-manager") {
		return nil
	}
	if err := network(); err != nil {
		return err
	}
	kernel := kernelRelease()
	if contains(args, "list") {
		fmt.Printf("Available Packages\nkernel-headers.x86_64  %s  baseos\n", strings.TrimSuffix(kernel, ".x86_64"))
		return nil
	}
	for _, arg := range args {
		switch arg {
		case "kernel-devel-" + kernel:
			if err := write("/usr/src/kernels/"+kernel+"/Makefile", ""); err != nil {
				return err
			}
		case "kernel-" + kernel:
			if err := writeAll("", "/lib/modules/"+kernel+"/vmlinuz", "/lib/modules/"+kernel+"/kernel/built-in"); err != nil {
				return err
			}
		}
	}
	return nil
}

const gcc = "11.5.0"

func rpm([]string) error {
	_, err := fmt.Printf("gcc-%s-5.el9.x86_64\n", gcc)
	return err
}

func extractVmlinux([]string) error {
	_, err := fmt.Printf("Linux version %s (build@host) (gcc (GCC) %s 20240719) #1 SMP (x)\n", kernelRelease(), gcc)
	return err
}

// fileType is file(1) for a kernel.
func fileType(args []string) error {
	_, err := fmt.Printf("%s: Linux kernel x86 boot executable bzImage, version %s (build@host), RO-rootFS\n", args[0], kernelRelease())
	return err
}
