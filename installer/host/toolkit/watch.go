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
	// settle is how long files must be left alone before they are looked at: whoever writes one often writes another.
	settle = time.Second
	// period is how often is looked although no file has changed: a runtime may have been replaced.
	period = 10 * time.Minute
)

// Watch does what Once does, and again whenever somebody has changed the configuration, until ctx ends. It tells every result that differs from
// the one before, and returns the first that is not done: whoever started it starts it again, later and later.
func (c Config) Watch(ctx context.Context, tell func(host.Result)) (host.Result, error) {
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
			tell(result)
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

// watch adds the folders, or the nearest parents that there are. Missed is whether one is new: what happened in it before is not known.
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

// wait returns when something has happened and nothing more does, or when the period is over.
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
