package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/cgroup"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// enterRoot builds the machine's root and enters it: the host's files as lower layer, the machine's own writable layer
// above, so that writes of a node are not visible to the host or other nodes. The writable layer and all bound folders
// are on the machine's disk and persist across reboots; /run, /dev and /tmp do not.
func enterRoot(folder string, spec machine.Spec) error {
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	root := filepath.Join(folder, machine.RootFolder)
	groups, err := cgroup.Host()
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return mountLayers(root, filepath.Join(folder, machine.DiskFolder)) },
		func() error { return mountKernel(root) },
		func() error { return groups.Mount(root) },
		func() error { return makeDevices(filepath.Join(root, "dev")) },
		func() error { return bindAll(root, spec.Mounts) },
		func() error { return writeAll(root, spec.Files) },
		func() error { return pivot(root) },
		func() error { return maskAll(spec.Masks) },
		func() error { return setAll(spec.Settings) },
		groups.Settle,
		func() error { return mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") }, // as on any host: volumes may propagate
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// layered lists the host's directories that may be separate file systems and are part of a machine's root.
func layered() []string { return []string{"/", "/usr", "/etc", "/var", "/opt"} }

// mountLayers mounts one overlay per file system of the host: lower is the host's, upper is on the machine's disk.
func mountLayers(root, disk string) error {
	for i, part := range layered() {
		if part != "/" && !isMountPoint(part) {
			continue
		}
		upper, work := filepath.Join(disk, fmt.Sprintf("upper%d", i)), filepath.Join(disk, fmt.Sprintf("work%d", i))
		for _, dir := range []string{upper, work} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make the machine's layer: %w", err)
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", part, upper, work)
		if err := mount("overlay", filepath.Join(root, part), "overlay", 0, options); err != nil {
			return err
		}
	}
	return nil
}

// isMountPoint reports whether dir is on another file system than its parent.
func isMountPoint(dir string) bool {
	var here, above unix.Stat_t
	if unix.Lstat(dir, &here) != nil || unix.Lstat(filepath.Dir(dir), &above) != nil {
		return false
	}
	return here.Mode&unix.S_IFMT == unix.S_IFDIR && here.Dev != above.Dev
}

// mountKernel mounts the kernel's file systems: a private /proc, the host's /sys with its cgroups, and empty /run and
// /tmp.
func mountKernel(root string) error {
	type step struct {
		source, target, kind string
		flags                uintptr
		options              string
	}
	for _, s := range []step{
		{"proc", "proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys", "sys", "", unix.MS_BIND | unix.MS_REC, ""},
		{"tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=755"},
		{"tmpfs", "run", "tmpfs", unix.MS_NOSUID, "mode=755"},
		{"tmpfs", "tmp", "tmpfs", unix.MS_NOSUID, "mode=1777"},
	} {
		target := filepath.Join(root, s.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("make a mount point: %w", err)
		}
		if err := mount(s.source, target, s.kind, s.flags, s.options); err != nil {
			return err
		}
	}
	return nil
}

// bindAll binds the host's folders and files into the root.
func bindAll(root string, mounts []machine.Mount) error {
	for _, m := range mounts {
		if err := bind(m.Source, filepath.Join(root, m.Target)); err != nil {
			return err
		}
	}
	return nil
}

// bind creates the mount point, of the source's type, and binds the source there recursively.
func bind(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("bind into the machine: %w", err)
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		err = touch(target)
	}
	if err != nil {
		return fmt.Errorf("make a mount point: %w", err)
	}
	return mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

// touch creates an empty file if it does not exist.
func touch(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// writeAll writes files, replacing those of the host, including symbolic links.
func writeAll(root string, files []machine.File) error {
	for _, file := range files {
		path := filepath.Join(root, file.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write into the machine: %w", err)
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("write into the machine: %w", err)
		}
		if err := os.WriteFile(path, file.Content, file.Mode); err != nil {
			return fmt.Errorf("write into the machine: %w", err)
		}
	}
	return nil
}

// pivot makes root the root of the current mount namespace and unmounts the host's.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil { // the old root is now mounted over the new one
		return fmt.Errorf("change to the new root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	return nil
}

// maskAll covers files with private copies in /run.
func maskAll(masks []machine.File) error {
	const folder = "/run/mask"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("mask files: %w", err)
	}
	for i, mask := range masks {
		if _, err := os.Stat(mask.Path); errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without this setting needs no mask
		}
		source := filepath.Join(folder, fmt.Sprint(i))
		if err := os.WriteFile(source, mask.Content, mask.Mode); err != nil {
			return fmt.Errorf("mask %s: %w", mask.Path, err)
		}
		if err := mount(source, mask.Path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// setAll writes kernel settings.
func setAll(settings []machine.File) error {
	for _, setting := range settings {
		if err := os.WriteFile(setting.Path, setting.Content, 0); err != nil {
			return fmt.Errorf("set a kernel setting: %w", err)
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}
