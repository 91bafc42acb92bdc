package prepare

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// locks are the locks of claims and GPUs: a lock file for the processes of the node, and a fair queue for the goroutines of this process. A
// claim's lock is taken before those of GPUs, and these in order of their names, so that there is no deadlock.
type locks struct {
	files disk.FileSystem
	dir   string
	queue queue
}

// heldLock is a lock that is held until release.
type heldLock struct {
	files disk.FileSystem
	file  disk.File
	leave func()
}

// heldError is the error of a wait for a lock that ended; it names the holder.
type heldError struct {
	holder string
	cause  error
}

// Error names the holder.
func (e *heldError) Error() string { return fmt.Sprintf("held by %s: %v", e.holder, e.cause) }

// Unwrap returns why the wait ended.
func (e *heldError) Unwrap() error { return e.cause }

// acquireClaim waits for the lock of the claim.
func (l *locks) acquireClaim(ctx context.Context, acquireClaim Ref) (*heldLock, error) {
	return l.acquire(ctx, claimLock(acquireClaim), claimOwner(acquireClaim))
}

// tryAcquireClaim takes the lock of the claim if it is free. A held lock has a live owner.
func (l *locks) tryAcquireClaim(claim Ref) (held *heldLock, free bool, err error) {
	name := claimLock(claim)
	leave, ok := l.queue.tryEnter(name, claimOwner(claim))
	if !ok {
		return nil, false, nil
	}
	file, err := lockFile(l.files, l.path(name), claimOwner(claim))
	if err != nil {
		leave()
		if errors.Is(err, lock.ErrHeld) {
			err = nil
		}
		return nil, false, err
	}
	return &heldLock{files: l.files, file: file, leave: leave}, true, nil
}

// acquireGPUs waits for the locks of the GPUs, whose names are in ascending order, and returns how to release
// them all.
func (l *locks) acquireGPUs(ctx context.Context, names []string, claim Ref) (release func(), err error) {
	return l.acquireGPUsFor(ctx, names, claimOwner(claim))
}

// acquireGPUsFor is acquireGPUs with another owner than a claim.
func (l *locks) acquireGPUsFor(ctx context.Context, names []string, owner string) (release func(), err error) {
	var held []*heldLock
	release = func() {
		for _, one := range held {
			one.release()
		}
	}
	for _, name := range names {
		one, err := l.acquire(ctx, name, owner)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, one)
	}
	return release, nil
}

func (l *locks) acquire(ctx context.Context, name, owner string) (*heldLock, error) {
	leave, err := l.queue.enter(ctx, name, owner)
	if err != nil {
		return nil, fmt.Errorf("waiting for %s, %w", name, err)
	}
	file, err := waitForFile(ctx, l.files, l.path(name), owner)
	if err != nil {
		leave()
		return nil, fmt.Errorf("waiting for %s, %w", name, err)
	}
	return &heldLock{files: l.files, file: file, leave: leave}, nil
}

// release releases the lock.
func (h *heldLock) release() {
	// Nothing was written to the file that Close could report.
	_ = h.file.Close()
	h.leave()
}

// releaseAfter releases the lock of a claim after an operation, and removes its file if the operation has removed the claim. The file of a claim with a
// record stays, because creating it again needs space.
func (h *heldLock) releaseAfter(removed bool) {
	if removed {
		h.releaseAndRemove()
		return
	}
	h.release()
}

// releaseAndRemove removes the lock's file and releases the lock, in this order: a process that has opened the file meanwhile detects that it was
// removed and opens a new one. A file that cannot be removed does no harm.
func (h *heldLock) releaseAndRemove() {
	_ = disk.Or(h.files).Remove(h.file.Name())
	h.release()
}

func (l *locks) path(name string) string { return filepath.Join(l.dir, name+".lock") }

func claimLock(claim Ref) string { return "claim-" + claim.UID }

func claimOwner(claim Ref) string { return "claim " + claim.String() }
