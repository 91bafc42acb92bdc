package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// driverDir is the mount point of the driver's root. The host sees it: the volume propagates both ways.
const driverDir = "/run/nvidia/driver"

// show mounts this container's root there, with the machine's state among its libraries, which connects the driver's libraries to its module.
// The state is mounted last, so that nvidia-smi works there only when everything is shown.
func show(version string) error {
	if err := os.MkdirAll(driverDir, 0o755); err != nil {
		return err
	}
	err := perform("mount --rbind / "+driverDir, func() error { return unix.Mount("/", driverDir, "", unix.MS_BIND, "") })
	if err != nil {
		return err
	}
	for _, root := range []string{driverDir, "/"} {
		state := filepath.Join(root, fakegpu.StateFile(version))
		if err := unix.Mount(fakegpu.BareState(folder), state, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the state on %s: %w", state, err)
		}
	}
	return nil
}

// hide unmounts the root that is shown, also that of an older container. Processes with open files of it keep them.
func hide() error {
	for {
		var below unix.Statfs_t
		err := unix.Statfs(driverDir, &below)
		if errors.Is(err, unix.ENOENT) || err == nil && below.Type != unix.OVERLAYFS_SUPER_MAGIC {
			return nil // no container's root is there
		}
		if err == nil {
			err = perform("umount -l -R "+driverDir, func() error { return unix.Unmount(driverDir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
		}
		if err != nil {
			return err
		}
	}
}

// attach mounts the node's folder of that path at the same path here. A real driver reaches the hardware through the kernel; this one
// through the mount namespace of the node's first process, which the pod sees.
func attach(folder string) error {
	if _, err := fakegpu.ReadSpec(folder); err == nil {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has been elsewhere and ends with the goroutine
		tree, err := take(folder)
		if err == nil {
			err = errors.Join(unix.MoveMount(tree, "", unix.AT_FDCWD, folder, unix.MOVE_MOUNT_F_EMPTY_PATH), unix.Close(tree))
		}
		done <- err
	}()
	return <-done
}

// take returns a copy of the mount of a folder of the node. The thread must be the caller's alone.
func take(folder string) (tree int, err error) {
	own, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return 0, err
	}
	defer own.Close() //nolint:errcheck // opened for reading
	node, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return 0, err
	}
	defer node.Close() //nolint:errcheck // opened for reading
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("leave the other threads: %w", err)
	}
	if err := unix.Setns(int(node.Fd()), unix.CLONE_NEWNS); err != nil {
		return 0, fmt.Errorf("enter the node (the pod needs hostPID and a privileged container): %w", err)
	}
	tree, err = unix.OpenTree(unix.AT_FDCWD, folder, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNS); back != nil {
		return 0, errors.Join(err, fmt.Errorf("come back from the node: %w", back))
	}
	if err != nil {
		return 0, fmt.Errorf("find %s on the node: %w", folder, err)
	}
	return tree, nil
}
