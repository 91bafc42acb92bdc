package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Enter is the first of two lives of the first process: it waits until there is a spec to read, by when it was put into its control groups, makes those
// the root of a cgroup namespace, and becomes the given program. A namespace belongs to a thread; only the replacement of the program leaves no other.
// It returns only with an error.
func Enter(program string, args ...string) error {
	runtime.LockOSThread()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(os.Stdin.Fd()), Events: unix.POLLIN}}, -1)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the machine's spec: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	if err := unix.Exec(program, append([]string{program}, args...), os.Environ()); err != nil {
		return fmt.Errorf("start the machine's second life: %w", err)
	}
	return nil
}
