package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Enter is the first stage of the first process. It waits until the spec can be read, at which time the process is in
// its control groups, makes these the root of a new cgroup namespace, and executes the given program. A namespace
// belongs to a thread; execve leaves no other thread. Enter returns only with an error.
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
