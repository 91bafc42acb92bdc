package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var errBusy = errors.New("in use")

// installed is the version of the driver's libraries and programs in this container.
const installed = "/usr/lib/nvidia/version"

func driverVersion() string {
	if text, err := os.ReadFile("/drivers/.version"); err == nil {
		return strings.TrimSpace(string(text))
	}
	return os.Getenv("DRIVER_VERSION")
}

// runFile is a driver's .run file: with -x it unpacks itself, otherwise it installs everything.
func runFile(args []string) error {
	version := driverVersion()
	if contains(args, "vgpu-kvm") || os.Getenv("CONTRACT_VGPU") != "" {
		return errors.Join(installUserspace(version), installModules(version, "nvidia_vgpu_vfio"),
			links("/usr/bin/nvidia-vgpud", "/usr/bin/nvidia-vgpu-mgr", "/usr/lib/nvidia/sriov-manage"))
	}
	if len(args) == 0 || args[0] != "-x" {
		return errors.Join(installUserspace(version), installModules(version, "nvidia_uvm", "nvidia_modeset", "nvidia_peermem"))
	}
	folder := "NVIDIA-Linux-x86_64-" + version
	for _, kind := range []string{"kernel", "kernel-open"} {
		if err := writeAll("", folder+"/"+kind+"/nvidia/nv-kernel.o_binary", folder+"/"+kind+"/nvidia-modeset/nv-modeset-kernel.o_binary"); err != nil {
			return err
		}
	}
	return errors.Join(writeAll("", folder+"/LICENSE", folder+"/.manifest"), links(folder+"/nvidia-installer", folder+"/mkprecompiled"))
}

// links installs this program under other names.
func links(paths ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(self, path); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// installer is nvidia-installer.
func installer(args []string) error {
	switch {
	case contains(args, "--print-recommended-kernel-module-type"):
		fmt.Println("open")
		return nil
	case contains(args, "--no-kernel-module"):
		return installUserspace(driverVersion())
	case contains(args, "--kernel-module-only"):
		return installModules(driverVersion(), "nvidia_uvm", "nvidia_modeset", "nvidia_peermem")
	}
	return fmt.Errorf("unknown arguments %v", args)
}

// installUserspace installs libraries, programs and firmware.
func installUserspace(version string) error {
	if strings.HasSuffix(version, "-grid") { // the driver of a vGPU guest
		if err := errors.Join(write("/etc/nvidia/gridd.conf.template", "# FeatureType=0\n"), links("/usr/bin/nvidia-gridd")); err != nil {
			return err
		}
	}
	return errors.Join(write(installed, version+"\n"), write("/lib/firmware/nvidia/"+version+"/gsp_ga10x.bin", "firmware\n"),
		links("/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced", "/usr/bin/nvidia-installer", "/usr/bin/nv-fabricmanager"))
}

// installModules compiles and installs nvidia and more modules, with the headers of the kernel and of the network driver that the container has.
func installModules(version string, more ...string) error {
	headers := filepath.Join("/lib/modules", kernelRelease(), "kernel")
	if _, err := os.Stat(headers); err != nil {
		return fmt.Errorf("the kernel's files are not installed: %w", err)
	}
	for _, module := range append([]string{"nvidia"}, more...) {
		text := version
		if module == "nvidia_peermem" {
			text += "+inbox"
			if flavor, err := os.ReadFile("/usr/src/ofa_kernel/flavor"); err == nil {
				text = version + "+" + strings.TrimSpace(string(flavor))
			}
		}
		if err := write(moduleFile(module), text+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// mkprecompiled packs or compares a package of compiled modules.
func mkprecompiled(args []string) error {
	if args[0] == "--pack" {
		return write(args[1], kernelRelease()+"\n")
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(text)) != kernelRelease() {
		fmt.Println("kernel interface does not match.")
		return nil
	}
	fmt.Println("kernel interface matches.")
	return nil
}

// compile is make in the folder of the modules' sources. With the dkms.conf of Debian's package it compiles whole modules, for which it needs the headers.
func compile(args []string) error {
	if contains(args, "clean") {
		return nil
	}
	if _, err := os.Stat("dkms.conf"); err == nil {
		headers := "/lib/modules/" + kernelRelease() + "/build/Makefile"
		if _, err := os.Stat(headers); err != nil || !contains(args, "KERNEL_UNAME="+kernelRelease()) {
			return fmt.Errorf("compile with %v and %s: %w", args, headers, errors.Join(err, errors.New("no headers of the kernel")))
		}
		return writeAll(driverVersion()+"\n", "nvidia.ko", "nvidia-uvm.ko", "nvidia-modeset.ko", "nvidia-peermem.ko")
	}
	return writeAll("", "nv-linux.o", "nv-modeset-linux.o")
}

// strip is strip --strip-debug -o <to> <from>.
func strip(args []string) error {
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	return write(args[2], string(text))
}

// link is ld.
func link(args []string) error {
	for i, arg := range args {
		if arg == "-o" {
			return write(args[i+1], "")
		}
	}
	return fmt.Errorf("no output in %v", args)
}

// firmware returns an error if the kernel cannot load the GPUs' firmware: it searches the machine's root at the path that a container has set.
func firmware() error {
	version, err := os.ReadFile(host("sys/module/nvidia/version"))
	if err != nil {
		return err
	}
	path, err := os.ReadFile(host("sys/module/firmware_class/parameters/path"))
	if err != nil {
		return err
	}
	file := filepath.Join(strings.TrimSpace(string(path)), "nvidia", strings.TrimSpace(string(version)), "gsp_ga10x.bin")
	if _, err := os.Stat(host(file)); err != nil {
		return fmt.Errorf("cannot load firmware %s: %w", file, err)
	}
	return nil
}

// ready returns an error if the driver cannot serve this container.
func ready() error {
	own, err := os.ReadFile(installed)
	if err != nil {
		return err
	}
	running, err := os.ReadFile(host("sys/module/nvidia/version"))
	if err != nil {
		return fmt.Errorf("has failed because it couldn't communicate with the NVIDIA driver: %w", err)
	}
	if strings.TrimSpace(string(own)) != strings.TrimSpace(string(running)) {
		return fmt.Errorf("failed to initialize NVML: Driver/library version mismatch: %s, %s", own, running)
	}
	return firmware()
}

// smi is nvidia-smi.
func smi(args []string) error {
	if err := ready(); err != nil {
		return err
	}
	if contains(args, "-q") {
		fmt.Printf("Driver Version                            : %s\n", driverVersion())
	}
	return nil
}

// daemon returns a program that goes to the background, writes its PID file, and has a module open until it ends.
func daemon(module string) program {
	return func([]string) error {
		if err := ready(); err != nil {
			return err
		}
		name := filepath.Base(os.Args[0])
		self, err := os.Executable()
		if err != nil {
			return err
		}
		reader, writer, err := os.Pipe()
		if err != nil {
			return err
		}
		c := exec.Command(self, "use", module, pidFile(name)) //nolint:noctx // it outlives this process
		c.ExtraFiles = make([]*os.File, descriptor-2)
		c.ExtraFiles[0] = writer
		c.ExtraFiles[descriptor-3] = os.NewFile(descriptor, "machine")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return err
		}
		if err := writer.Close(); err != nil {
			return err
		}
		// The process closes the pipe when it has the module open.
		if text, err := io.ReadAll(reader); err != nil || string(text) != "open" {
			return fmt.Errorf("the daemon did not start: %q %w", text, err)
		}
		return nil
	}
}

func pidFile(name string) string {
	short := name
	if name == "nv-fabricmanager" {
		return "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid"
	}
	return "/var/run/" + short + "/" + short + ".pid"
}

// foreground returns a program that has a module open until it ends.
func foreground(module string) program {
	return func([]string) error {
		if err := ready(); err != nil {
			return err
		}
		name := filepath.Base(os.Args[0])
		return hold(module, pidFile(name), nil)
	}
}

// use has a module open until the process ends; see daemon.
func use(args []string) error {
	if len(args) == 1 {
		return hold(args[0], "", func() error { _, err := fmt.Println("open"); return err })
	}
	pipe := os.NewFile(3, "pipe")
	return hold(args[0], args[1], func() error {
		_, err := pipe.WriteString("open")
		return errors.Join(err, pipe.Close())
	})
}

func hold(module, pid string, opened func() error) error {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	if err := open(module); err != nil {
		return err
	}
	if pid != "" {
		if err := write(pid, strconv.Itoa(os.Getpid())+"\n"); err != nil {
			return err
		}
	}
	if opened != nil {
		if err := opened(); err != nil {
			return err
		}
	}
	<-end
	if pid != "" {
		if err := os.Remove(pid); err != nil {
			return err
		}
	}
	return locked(func() error { return os.Remove(host(fmt.Sprintf(".open/%s/%d", module, os.Getpid()))) })
}

// vgpud is nvidia-vgpud: it describes the virtual GPUs and ends.
func vgpud([]string) error { return ready() }

// sriovManage enables and disables virtual functions.
func sriovManage(args []string) error {
	if !loaded("nvidia") {
		return errors.New("the driver is not loaded")
	}
	if contains(args, "-d") {
		return os.RemoveAll(host("sys/class/mdev_bus"))
	}
	return write(host("sys/class/mdev_bus/0000:3b:00.4"), "")
}

// pause sleeps a hundredth of the time, or until a signal.
func pause(args []string) error {
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(args[0], "s"), 64)
	if err != nil || args[0] == "inf" || args[0] == "infinity" {
		return unix.Pause()
	}
	time.Sleep(time.Duration(seconds * float64(time.Second) / 100))
	return nil
}

// pgrep finds processes by name, as pgrep(1) does.
func pgrep(args []string) error {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil && strings.TrimSpace(string(text)) == args[0] {
			fmt.Println(filepath.Base(filepath.Dir(name)))
			return nil
		}
	}
	os.Exit(1)
	return nil
}

// real returns a program that continues as the program of this name.
func unchanged(name string) program {
	return func(args []string) error {
		return syscall.Exec("/usr/lib/contract/"+name, append([]string{name}, args...), os.Environ())
	}
}

func copyInput([]string) error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}
