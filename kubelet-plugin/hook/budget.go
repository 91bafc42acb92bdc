package hook

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxProcessorTime is the processor time that the hooks spend on a root: 30 ms for an image with 500 libraries. The limits of numbers do not bound it, because
// a path can have forty links with thousands of elements. Nodes can be much slower than the one that was measured: a virtual machine counts the time in
// which its host runs others, and one without hardware support needed 600 ms for an image of NVIDIA's.
const maxProcessorTime = 2 * time.Second

// checkTime returns an error if the process has spent maxProcessorTime since the root was opened.
func (r root) checkTime() error {
	now, err := processorTime()
	if err == nil && now-r.began > maxProcessorTime {
		err = fmt.Errorf("the image takes more than %v of processor time: shorten its links and the folders of its linker", maxProcessorTime)
	}
	return err
}

// processorTime returns the processor time of the process. The hooks have one thread, but Go's runtime has another that watches long system calls, and took
// nearly as much on a path with many links.
func processorTime() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
