package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// progressPause is how often a long build says that it is alive.
const progressPause = 15 * time.Second

// Builder builds families from Modules into Cache and tells Progress what it is doing, a line at a time.
type Builder struct {
	Modules  string
	Cache    string
	Progress io.Writer
}

// Folders tells for each family's name where its programs are.
type Folders map[string]string

// Build builds what is missing in the cache. Builders in other processes wait for each other; an interrupted build leaves nothing that counts as built.
func (b Builder) Build(ctx context.Context) (Folders, error) {
	folders := Folders{}
	for _, family := range Families() {
		folder, err := b.BuildOne(ctx, family.Name)
		if err != nil {
			return nil, err
		}
		folders[family.Name] = folder
	}
	return folders, nil
}

// BuildOne builds what is missing of one family and returns its folder.
func (b Builder) BuildOne(ctx context.Context, name string) (string, error) {
	for _, family := range Families() {
		if family.Name != name {
			continue
		}
		p, err := family.pin(ctx, b.Modules)
		if err != nil {
			return "", err
		}
		folder, err := b.ensure(ctx, p)
		if err != nil {
			return "", fmt.Errorf("build %s %s: %w", name, p.version, err)
		}
		return folder, nil
	}
	return "", fmt.Errorf("build %s: no family of programs has this name", name)
}

// Ready tells whether everything is in the cache already.
func (b Builder) Ready(ctx context.Context) (bool, error) {
	for _, family := range Families() {
		p, err := family.pin(ctx, b.Modules)
		if err != nil {
			return false, err
		}
		if !built(b.folder(p)) {
			return false, nil
		}
	}
	return true, nil
}

// folder is where a family is kept.
func (b Builder) folder(p pinned) string { return filepath.Join(b.Cache, "bin", p.key) }

// Compile builds one main package of the module in source to the file out. It does nothing if the file is up to date. Processes that compile to the
// same file wait for each other.
func Compile(ctx context.Context, source, pkg, out string) error {
	unlock, err := lock(out + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := goCommand(ctx, source, "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// ensure returns the folder of the family, which it builds when there is none yet.
func (b Builder) ensure(ctx context.Context, p pinned) (string, error) {
	folder := b.folder(p)
	if built(folder) {
		return folder, nil
	}
	unlock, err := lock(folder + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(folder) { // by whoever held the lock before us
		return folder, nil
	}
	unfinished := folder + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := b.build(ctx, p, unfinished); err != nil {
		return "", err
	}
	return folder, os.Rename(unfinished, folder)
}

// build compiles all programs with one command, as they share most of their packages.
func (b Builder) build(ctx context.Context, p pinned, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	started := time.Now()
	b.say("building %s %s (%d programs)", p.Name, p.version, len(p.Programs))
	done := make(chan error, 1)
	go func() { done <- p.compile(ctx, folder) }()
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			b.say("built %s %s in %s", p.Name, p.version, time.Since(started).Round(time.Second))
			return nil
		case <-ticker.C:
			b.say("building %s %s: %s so far", p.Name, p.version, time.Since(started).Round(time.Second))
		}
	}
}

// compile builds the programs one by one: only so does each get its own name, and the shared packages are compiled once all the same.
func (p pinned) compile(ctx context.Context, folder string) error {
	for _, program := range p.Programs {
		args := append([]string{"build"}, p.flags()...)
		args = append(args, "-o", filepath.Join(folder, program.Name), program.Package)
		if _, err := goCommand(ctx, p.folder, args...); err != nil {
			return fmt.Errorf("%s: %w", program.Name, err)
		}
	}
	return nil
}

func (b Builder) say(format string, args ...any) {
	fmt.Fprintf(b.Progress, format+"\n", args...) //nolint:errcheck // progress is for the eye
}

func built(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}

// lock takes a lock that ends with the process, at the latest.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
