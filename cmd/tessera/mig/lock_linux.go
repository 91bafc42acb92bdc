package mig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPause is how often a lock is tried that somebody else holds.
const lockPause = 100 * time.Millisecond

// owner is what whoever waits reads about this process.
const owner = "tessera mig"

// lock locks a GPU's file as kubelet-plugin/prepare does: with an open-file-description lock, which the
// kernel releases with the process. It waits until ctx ends.
func lock(ctx context.Context, path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if err == nil {
			if err := errors.Join(file.Truncate(0), write(file)); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			holder, _ := os.ReadFile(path)
			return nil, fmt.Errorf("the agent works on it for %q: %w", holder, context.Cause(ctx))
		}
	}
}

func write(file *os.File) error {
	_, err := file.WriteAt([]byte(owner), 0)
	return err
}
