package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// The intervals at which a lock is tried that another process holds. That happens only while two agents overlap; within a process, the queue
// wakes the next goroutine.
const (
	minPollDelay = time.Millisecond
	maxPollDelay = 50 * time.Millisecond
)

// lockFile locks the file, creating it, or returns lock.ErrHeld. The owner is written to the file, for the errors of waiting processes, unless the disk
// is full.
func lockFile(files disk.FileSystem, path, owner string) (disk.File, error) {
	file, err := lock.OpenExclusive(files, path)
	if err != nil {
		return nil, err
	}
	if err := writeOwner(file, owner); err != nil && !isFull(err) {
		return nil, errors.Join(fmt.Errorf("sign %s: %w", path, err), file.Close())
	}
	return file, nil
}

// waitForFile locks the file as soon as it is free. If ctx ends first, the error is a heldError.
func waitForFile(ctx context.Context, files disk.FileSystem, path, owner string) (disk.File, error) {
	for pause := minPollDelay; ; pause = min(2*pause, maxPollDelay) {
		file, err := lockFile(files, path, owner)
		if !errors.Is(err, lock.ErrHeld) {
			return file, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, &heldError{holder: readOwner(path), cause: context.Cause(ctx)}
		}
	}
}

func writeOwner(file disk.File, owner string) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(owner), 0)
	return err
}

// isFull reports whether the error is of a file system or quota without space.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// readOwner returns the owner that is written in the lock file.
func readOwner(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return "another process"
	}
	return string(text) + " in another process"
}
