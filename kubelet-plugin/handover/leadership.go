package handover

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Lead runs lead while this instance is the newest that runs: immediately if it is, and again when the newer ones have ended. The context of
// lead is canceled as soon as a newer instance joins. Lead returns nil when ctx ends, and the error of lead.
func (i *Instance) Lead(ctx context.Context, lead func(context.Context) error) error {
	changes, err := watchFolder(i.dir)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	changed := make(chan struct{}, 1)
	group.Go(func() error {
		<-ctx.Done()
		return changes.Close()
	})
	group.Go(func() error { return forwardChanges(ctx, changes, changed) })
	group.Go(func() error { return i.updateLeadership(ctx, changed, lead) })
	return group.Wait()
}

// recheckPeriod is how often an instance that does not lead checks without a change. The kernel reports the close of a file a moment before it
// releases its lock (__fput in Linux' fs/file_table.c): a check between the two finds the instance running, and no further event follows.
const recheckPeriod = time.Second

// updateLeadership starts and ends leaderships when the folder changes.
func (i *Instance) updateLeadership(ctx context.Context, changed <-chan struct{}, lead func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	var current *leadership
	defer func() { current.end() }()
	for {
		leads, err := i.newest()
		switch {
		case err != nil:
			return err
		case leads && current == nil:
			logger.Info("Leading: no newer agent runs", "number", i.number)
			current = startLeadership(ctx, lead)
		case !leads && current != nil:
			logger.Info("Not leading: a newer agent runs", "number", i.number)
			current.end()
			current = nil
		}
		var again <-chan time.Time
		if !leads {
			again = time.After(recheckPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		case err := <-current.failed():
			return err
		}
	}
}

// leadership is a period in which the instance leads.
type leadership struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    chan error
}

func startLeadership(ctx context.Context, lead func(context.Context) error) *leadership {
	ctx, cancel := context.WithCancel(ctx)
	t := &leadership{cancel: cancel, done: make(chan struct{}), err: make(chan error, 1)}
	go func() {
		defer close(t.done)
		if err := lead(ctx); err != nil && ctx.Err() == nil {
			t.err <- err
		}
	}()
	return t
}

// failed receives the error of a leadership that has failed. It accepts nil.
func (t *leadership) failed() <-chan error {
	if t == nil {
		return nil
	}
	return t.err
}

// end cancels the leadership and waits for it. It accepts nil.
func (t *leadership) end() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
}

// watchFolder opens a stream of the folder's changes (inotify(7)). A file is closed after writing when its instance has ended.
func watchFolder(dir string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_DELETE); err != nil {
		_ = changes.Close()
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return changes, nil
}

// forwardChanges merges the changes into at most one pending value.
func forwardChanges(ctx context.Context, changes *os.File, changed chan<- struct{}) error {
	events := make([]byte, 4096)
	for ctx.Err() == nil {
		if _, err := changes.Read(events); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch the agents of the node: %w", err)
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return nil
}
