package toolkit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tessera-gpu/tessera/installer/host"
)

const (
	// settle is how long files must be unchanged before they are read, because often several are written.
	settle = time.Second
	// period is the interval of checks without a changed file, because the runtime may have been replaced.
	period = 10 * time.Minute
)

// Watch calls Once, and again after each change of the configuration, until ctx ends. It reports each result that differs from the one before, and
// returns the first that is not done, so that kubelet restarts the container with a backoff.
func (c Config) Watch(ctx context.Context, report func(host.Result)) (host.Result, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return host.Result{}, fmt.Errorf("watch the runtime's configuration: %w", err)
	}
	defer watcher.Close()
	var last host.Result
	for {
		result, folders := c.Once(ctx)
		if ctx.Err() != nil {
			return last, nil
		}
		if !result.Done {
			return result, nil
		}
		if result != last {
			report(result)
		}
		last = result
		missed, err := c.watch(watcher, folders)
		if err != nil {
			return last, err
		}
		if missed {
			continue
		}
		if err := wait(ctx, watcher); err != nil {
			return last, err
		}
	}
}

// watch adds the folders, or their nearest existing parents. Missed reports whether a folder is new, so that earlier events in it were missed.
func (c Config) watch(watcher *fsnotify.Watcher, folders []string) (missed bool, err error) {
	watched := map[string]bool{}
	for _, path := range watcher.WatchList() {
		watched[path] = true
	}
	for _, folder := range folders {
		seen, err := c.Roots.See(folder)
		if err != nil {
			return false, err
		}
		for {
			if _, err := os.Stat(seen); !errors.Is(err, fs.ErrNotExist) || seen == filepath.Dir(seen) {
				break
			}
			seen = filepath.Dir(seen)
		}
		if watched[seen] {
			continue
		}
		if err := watcher.Add(seen); err != nil {
			return false, fmt.Errorf("watch %s: %w", folder, err)
		}
		watched[seen], missed = true, true
	}
	return missed, nil
}

// wait returns when an event has occurred and no further one within settle, or when the period is over.
func wait(ctx context.Context, watcher *fsnotify.Watcher) error {
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return nil
		case _, open := <-watcher.Events:
			if !open {
				return errors.New("watch the runtime's configuration: the watch was closed")
			}
			timer.Reset(settle)
		case err := <-watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch the runtime's configuration: %w", err)
			}
			timer.Reset(settle)
		}
	}
}
