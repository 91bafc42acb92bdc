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

// Lead runs speak whenever this instance is the newest live one: at once if it is, and again whenever
// the newer ones are gone. The context of speak is cancelled as soon as a newer one joins. Lead
// returns nil when ctx ends and an error when speak fails by itself.
func (i *Instance) Lead(ctx context.Context, speak func(context.Context) error) error {
	changes, err := watchFolder(i.dir)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	stirred := make(chan struct{}, 1)
	group.Go(func() error {
		<-ctx.Done()
		return changes.Close()
	})
	group.Go(func() error { return forwardChanges(ctx, changes, stirred) })
	group.Go(func() error { return i.updateLeadership(ctx, stirred, speak) })
	return group.Wait()
}

// recheckPeriod is how long an instance that stands back waits for the folder to stir. The kernel tells that
// a dead one's file is closed a moment before it releases its lock (__fput in Linux' fs/file_table.c):
// whoever looks between the two sees it alive, and nothing tells of the second.
const recheckPeriod = time.Second

// updateLeadership starts and ends terms as the folder stirs.
func (i *Instance) updateLeadership(ctx context.Context, stirred <-chan struct{}, speak func(context.Context) error) error {
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
			current = startLeadership(ctx, speak)
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
		case <-stirred:
		case <-again:
		case err := <-current.failed():
			return err
		}
	}
}

// leadership is one stretch of time in which the instance leads.
type leadership struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    chan error
}

func startLeadership(ctx context.Context, speak func(context.Context) error) *leadership {
	ctx, cancel := context.WithCancel(ctx)
	t := &leadership{cancel: cancel, done: make(chan struct{}), err: make(chan error, 1)}
	go func() {
		defer close(t.done)
		if err := speak(ctx); err != nil && ctx.Err() == nil {
			t.err <- err
		}
	}()
	return t
}

// failed delivers the error of a term that ended by itself. It works on nil.
func (t *leadership) failed() <-chan error {
	if t == nil {
		return nil
	}
	return t.err
}

// end cancels the term and waits for it. It works on nil.
func (t *leadership) end() {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
}

// watchFolder opens a stream of the folder's changes (inotify(7)). A file that is closed after writing
// belongs to an instance that left or died: the kernel closes it for the dead.
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

// forwardChanges turns the changes into at most one pending stir.
func forwardChanges(ctx context.Context, changes *os.File, stirred chan<- struct{}) error {
	events := make([]byte, 4096)
	for ctx.Err() == nil {
		if _, err := changes.Read(events); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch the agents of the node: %w", err)
		}
		select {
		case stirred <- struct{}{}:
		default:
		}
	}
	return nil
}
