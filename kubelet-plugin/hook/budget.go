package hook

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxProcessorTime is the processor time that the hooks spend on a root: milliseconds for the largest images. The limits of numbers do not bound it,
// because a path can have forty links with thousands of elements.
const maxProcessorTime = 500 * time.Millisecond

// checkTime returns an error if the thread has spent maxProcessorTime since the root was opened.
func (r root) checkTime() error {
	now, err := processorTime()
	if err == nil && now-r.began > maxProcessorTime {
		err = fmt.Errorf("the image takes more than %v of processor time: shorten its links and the folders of its linker", maxProcessorTime)
	}
	return err
}

// processorTime returns the processor time of the thread.
func processorTime() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
