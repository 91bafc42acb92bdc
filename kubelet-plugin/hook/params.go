package hook

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

const (
	paramsFolder = "/proc/driver/nvidia"
	paramsPath   = paramsFolder + "/params"
	maxParams    = 64 << 10
)

// disableDeviceNodeModification makes the driver's libraries in the container read that they must not create or change
// device nodes: it mounts a copy of the driver's parameters with ModifyDeviceFiles: 0 over the original. A root without
// the driver's parameters, or whose parameters already have that value, is not changed.
func disableDeviceNodeModification(c container, _ options) error {
	folder, err := c.lookup(paramsFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	params, text, err := readParams(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer params.Close()
	return c.mask(folder, params, text)
}

// mask mounts the text with ModifyDeviceFiles: 0 over params, a file of procfs in the folder, unless the text has that already.
func (c container) mask(folder, params *os.File, text []byte) error {
	masked, changed := withoutDeviceFiles(text)
	if !changed {
		return nil
	}
	err := overmount(folder, params, masked)
	if errors.Is(err, unix.ENOSYS) {
		c.warn("%v: this kernel is too old to hide the driver's parameters", err)
		return nil
	}
	return err
}

// readParams returns a handle of the driver's parameters in the folder, and their content. The folder can be another one of the image, and so
// another one of procfs: the name is not followed, and no other file of procfs has it.
func readParams(folder *os.File) (*os.File, []byte, error) {
	handle, err := unix.Openat(int(folder.Fd()), path.Base(paramsPath), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	params := os.NewFile(uintptr(handle), paramsPath)
	var stat unix.Stat_t
	var system unix.Statfs_t
	err = errors.Join(unix.Fstat(handle, &stat), unix.Fstatfs(handle, &system))
	if err == nil && (system.Type != unix.PROC_SUPER_MAGIC || stat.Mode&unix.S_IFMT != unix.S_IFREG) {
		err = fmt.Errorf("mount over %s: it is not of procfs", paramsPath)
	}
	var text []byte
	if err == nil {
		text, err = readProcFile(handle)
	}
	if err != nil {
		params.Close()
		return nil, nil, err
	}
	return params, text, nil
}

// readProcFile returns the content of the driver's parameters behind a handle.
func readProcFile(handle int) ([]byte, error) {
	fd, err := openHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", paramsPath, err)
	}
	return readDescriptor(fd, paramsPath, maxParams)
}

// withoutDeviceFiles returns the parameters with ModifyDeviceFiles set to 0, and whether it was 1.
func withoutDeviceFiles(params []byte) ([]byte, bool) {
	const on, off = "ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"
	var masked bytes.Buffer
	changed := false
	for line := range bytes.Lines(params) {
		if string(bytes.TrimSpace(line)) == on {
			line, changed = []byte(off+"\n"), true
		}
		masked.Write(line)
	}
	return masked.Bytes(), changed
}

// overmount mounts a read-only file with the text over target, a file of procfs in the folder. The mount is complete and
// read-only before it appears. Its file is in its own tmpfs, which must be mounted somewhere while the file is cloned
// out of it: it is mounted on the folder, which is hidden for that moment only, before any process of the container
// runs.
func overmount(folder, target *os.File, text []byte) error {
	scratch, err := tmpfs(len(text))
	if err != nil {
		return fmt.Errorf("make a tmpfs: %w", err)
	}
	defer unix.Close(scratch)
	if err := writeAt(scratch, "params", text); err != nil {
		return fmt.Errorf("write to a tmpfs: %w", err)
	}
	file, err := detach(scratch, "params", folder)
	if err != nil {
		return fmt.Errorf("detach a file from a tmpfs: %w", err)
	}
	defer unix.Close(file)
	if err := attach(file, int(target.Fd())); err != nil {
		return fmt.Errorf("mount over %s: %w", target.Name(), err)
	}
	return nil
}

const hardened = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC

// tmpfs returns a new, unmounted tmpfs that is just large enough for a file of the size.
func tmpfs(size int) (int, error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(context)
	for key, value := range map[string]string{"size": fmt.Sprint(size), "nr_inodes": "3", "mode": "0755"} {
		if err := unix.FsconfigSetString(context, key, value); err != nil {
			return -1, err
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, err
	}
	return unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, hardened)
}

func writeAt(folder int, name string, text []byte) error {
	fd, err := unix.Openat(folder, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name)
	_, err = file.Write(text)
	return errors.Join(err, file.Chmod(0o444), file.Close())
}

// detach returns an unmounted, read-only mount of one file of the file system.
func detach(system int, name string, place *os.File) (file int, err error) {
	if err := attach(system, int(place.Fd())); err != nil {
		return -1, err
	}
	defer func() {
		if e := unix.Unmount(selfFD(system), unix.MNT_DETACH); e != nil && err == nil {
			unix.Close(file)
			file, err = -1, e
		}
	}()
	file, err = unix.OpenTree(system, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	attributes := unix.MountAttr{Attr_set: hardened | unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(file, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		unix.Close(file)
		return -1, err
	}
	return file, nil
}

// attach mounts an unmounted mount over the file or folder behind a handle.
func attach(mount, place int) error {
	return unix.MoveMount(mount, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}
