package hook

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// inRootMount returns an error that wraps unix.EXDEV if the file behind a handle is on another mount than the root.
//
// The mounts in a root are volumes of the pod and files of the host. The hooks run as root and would change what the container's user, and the user
// who mounted it, cannot: the host's own /etc, a volume of other pods. They read from every mount and write to the root's only.
func (r root) inRootMount(file *os.File) error {
	own, err := mountID(r.dir)
	if err != nil {
		return err
	}
	other, err := mountID(file)
	if err != nil {
		return err
	}
	if own != other {
		return fmt.Errorf("it is on a volume, which is not changed: %w", unix.EXDEV)
	}
	return nil
}

// checkParents checks the deepest existing parent of a folder with inRootMount, before its missing elements are created there.
func (r root) checkParents(folder string) error {
	for at := path.Join("/", folder); ; at = path.Dir(at) {
		handle, err := r.lookup(at)
		if err != nil && at != "/" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer handle.Close()
		return r.inRootMount(handle)
	}
}

// mountID returns the id of the mount through which the file was opened (proc_pid_fdinfo(5)).
func mountID(file *os.File) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, found := bytes.CutPrefix(line, []byte("mnt_id:")); found {
			return strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
	return 0, fmt.Errorf("%s: the kernel reports no mount", file.Name())
}

// isUnwritable reports whether an error means that a place in a container cannot be changed: a read-only file system, another mount, or a mount at
// the place itself. A container starts without the change.
func isUnwritable(err error) bool {
	return slices.ContainsFunc([]error{unix.EROFS, unix.EXDEV, unix.EBUSY}, func(e error) bool { return errors.Is(err, e) })
}

// The types of the kernel's file systems that golang.org/x/sys/unix lacks (linux/magic.h, fs/configfs).
const configFSMagic = 0x62656570

// isKernelType reports whether a type of file system, of statfs(2), is one whose files are views of the kernel.
func isKernelType(kind int64) bool {
	return slices.Contains([]int64{
		unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.BPF_FS_MAGIC,
		unix.BINFMTFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, configFSMagic,
	}, kind)
}
