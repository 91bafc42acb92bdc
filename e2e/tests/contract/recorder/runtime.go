package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// node is the first process of a machine, in its own mount and PID namespace: `recorder node <folder>` mounts the machine's root at <folder>/root,
// as a shared mount like that of a host, and the containers' writable layers at <folder>/layers, and waits.
func node(args []string) error {
	folder := args[0]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// What simulated hardware needs below /run, where it is at the same path on the machine and in containers.
	if own := filepath.Join(folder, "run"); exists(own) {
		if err := unix.Mount(own, "/run", "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, name := range []string{"root", "layers"} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(path, 0o755), unix.Mount("tmpfs", path, "tmpfs", 0, "")); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	root := filepath.Join(folder, "root")
	if err := unix.Mount("", root, "", unix.MS_SHARED, ""); err != nil {
		return err
	}
	if err := devices(filepath.Join(root, "dev")); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(root), os.Chdir("/")); err != nil {
		return err
	}
	fmt.Println("up")
	// Processes whose parent has ended are children of the first process.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			for pid := 1; pid > 0; {
				pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil) //nolint:errcheck // there need not be any
			}
		}
	}()
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return nil //nolint:nilerr // the test has ended, or has stopped the machine
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// devices makes the device nodes that every program needs.
func devices(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		path := filepath.Join(folder, name)
		if err := errors.Join(unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))), os.Chmod(path, 0o666)); err != nil { //nolint:gosec // a small number
			return err
		}
	}
	return nil
}

// Mount is a folder or file of the machine in a container. Package machine writes it.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	// Propagation is a value of corev1.MountPropagationMode.
	Propagation string
	// flat leaves out what is mounted below.
	flat bool
}

// Container is what a container runtime gets. Package machine writes it.
type Container struct {
	// Folder is the machine's, Image the folder of the image and Layer that of the writable layer.
	Folder, Image, Layer string
	Mounts               []Mount
	Args, Env            []string
	Dir                  string
	Privileged           bool
}

// container starts a container in the namespaces of the machine's first process: `recorder container <file>`.
func container(args []string) error {
	runtime.LockOSThread() // never unlocked: this thread becomes the container
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var c Container
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	machine, err := unix.Open(filepath.Join(c.Folder, "root"), unix.O_PATH, 0)
	if err != nil {
		return err
	}
	if err := unix.Dup3(machine, descriptor, 0); err != nil {
		return err
	}
	if err := c.enter(); err != nil {
		return err
	}
	if err := c.confine(); err != nil {
		return err
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	os.Clearenv()
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	program, err := exec.LookPath(c.Args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, c.Args, c.Env)
}

// enter makes the container's root the root: the image with a writable layer, the kernel's file systems, and the mounts. The order is that of
// containerd, parents first; a mount shares events with the machine by its propagation.
func (c Container) enter() error {
	root := filepath.Join(c.Layer, "root")
	for _, folder := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(c.Layer, folder), 0o755); err != nil {
			return err
		}
	}
	// The layers are a private mount, so that mounts below stay in this namespace.
	if err := unix.Mount("", filepath.Join(c.Folder, "layers"), "", unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", c.Image, c.Layer, c.Layer)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	if err := c.kernelFiles(root); err != nil {
		return err
	}
	for _, m := range c.Mounts {
		if err := m.mount(filepath.Join(c.Folder, "root"), root); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, ".old"), 0o755); err != nil {
		return err
	}
	if err := errors.Join(unix.PivotRoot(root, filepath.Join(root, ".old")), os.Chdir("/")); err != nil {
		return err
	}
	// Not even the container's own unmounts reach the machine by the old root.
	if err := unix.Mount("", "/.old", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	return errors.Join(unix.Unmount("/.old", unix.MNT_DETACH), os.Remove("/.old"))
}

// kernelFiles mounts proc, sys and dev. What drivers show in proc belongs to the machine's kernel and is the same in every container.
func (c Container) kernelFiles(root string) error {
	machine := filepath.Join(c.Folder, "root")
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return err
	}
	// What is mounted below the machine's sysfs, such as selinuxfs, is not in that of a container.
	sysfs := Mount{Source: "/sys", Target: "/sys", ReadOnly: !c.Privileged, flat: true}
	for _, m := range []Mount{{Source: "/proc/driver", Target: "/proc/driver"}, sysfs} {
		if err := m.mount(machine, root); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	folder := filepath.Join(root, "dev")
	if err := errors.Join(os.MkdirAll(folder, 0o755), unix.Mount("tmpfs", folder, "tmpfs", 0, "")); err != nil {
		return err
	}
	return errors.Join(devices(folder), os.Symlink("/proc/self/fd", filepath.Join(folder, "fd")))
}

// makeTarget creates the target of a mount, a folder or a file, unless it exists.
func makeTarget(target string, isFolder bool) error {
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if isFolder {
		return os.MkdirAll(target, 0o755)
	}
	return write(target, "")
}

func (m Mount) mount(machine, root string) error {
	source := m.Source
	if !strings.HasPrefix(source, machine) && !strings.HasPrefix(source, filepath.Dir(machine)) {
		source = filepath.Join(machine, source)
	}
	target, err := securejoin.SecureJoin(root, m.Target)
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	bind := uintptr(unix.MS_BIND | unix.MS_REC)
	if m.flat {
		bind = unix.MS_BIND
	}
	if err := unix.Mount(source, target, "", bind, ""); err != nil {
		return err
	}
	flag := uintptr(unix.MS_PRIVATE)
	switch m.Propagation {
	case "Bidirectional":
		flag = unix.MS_SHARED
	case "HostToContainer":
		flag = unix.MS_SLAVE
	}
	if err := unix.Mount("", target, "", flag|unix.MS_REC, ""); err != nil {
		return err
	}
	if m.ReadOnly {
		return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// confine drops capabilities. No container can change the modules of the kernel that the test runs on.
func (c Container) confine() error {
	for cap := range unix.CAP_LAST_CAP + 1 {
		if c.Privileged && cap != unix.CAP_SYS_MODULE && cap != unix.CAP_SYS_BOOT && cap != unix.CAP_SYS_TIME && cap != unix.CAP_SYS_RAWIO {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(cap), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop a capability: %w", err)
		}
	}
	return nil
}
