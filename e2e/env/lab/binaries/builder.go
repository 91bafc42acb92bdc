package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progressPause is the interval of progress messages during a long build.
const progressPause = 15 * time.Second

// Builder builds families from Modules into Cache and writes one line per step to Progress.
type Builder struct {
	Modules  string
	Cache    string
	Progress io.Writer
}

// NewBuilder returns a builder of the repository's families into a cache, the default cache if empty.
func NewBuilder(cache string, progress io.Writer) (Builder, error) {
	source, err := Source()
	if err != nil {
		return Builder{}, err
	}
	if cache == "" {
		if cache, err = DefaultCache(); err != nil {
			return Builder{}, err
		}
	}
	return Builder{Modules: filepath.Join(source, "e2e", "env", "lab", "modules"), Cache: cache, Progress: progress}, nil
}

// Folders maps the name of each family to the folder of its programs.
type Folders map[string]string

// Build builds the named families that are missing in the cache, all families if none is named. Builds in several processes are serialized by a lock. An
// interrupted build is not considered complete.
func (b Builder) Build(ctx context.Context, names ...string) (Folders, error) {
	if len(names) == 0 {
		families, err := Families()
		if err != nil {
			return nil, err
		}
		for _, family := range families {
			names = append(names, family.Name)
		}
	}
	folders := Folders{}
	for _, name := range names {
		folder, err := b.BuildOne(ctx, name)
		if err != nil {
			return nil, err
		}
		folders[name] = folder
	}
	return folders, nil
}

// BuildOne builds one family, if it is missing in the cache, and returns its folder.
func (b Builder) BuildOne(ctx context.Context, name string) (string, error) {
	families, err := Families()
	if err != nil {
		return "", err
	}
	for _, family := range families {
		if family.Name == name {
			return b.buildFamily(ctx, family)
		}
	}
	return "", fmt.Errorf("build %s: no family of programs has this name", name)
}

// BuildKubernetes builds the programs of a minor version of Kubernetes, if they are missing in the cache, and returns their folder. The environment does not
// matter.
func (b Builder) BuildKubernetes(ctx context.Context, version string) (string, error) {
	return b.buildFamily(ctx, kubernetes(version))
}

// Built is a family with the sources from which it is built.
type Built struct {
	// Folder has the programs, Module the sources. Version has no v.
	Folder, Module, Version string
}

// BuildKueue builds Kueue, which is no part of a lab, if it is missing in the cache.
func (b Builder) BuildKueue(ctx context.Context) (Built, error) {
	family := Family{Name: "kueue", Module: "sigs.k8s.io/kueue", Programs: []Program{{"kueue", "sigs.k8s.io/kueue/cmd/kueue"}}}
	folder, err := b.buildFamily(ctx, family)
	if err != nil {
		return Built{}, err
	}
	p, err := family.pin(ctx, b.Modules)
	if err != nil {
		return Built{}, err
	}
	module, err := goCommand(ctx, p.folder, "list", "-m", "-f", "{{.Dir}}", family.Module)
	return Built{Folder: folder, Module: module, Version: strings.TrimPrefix(p.version, "v")}, err
}

func (b Builder) buildFamily(ctx context.Context, family Family) (string, error) {
	p, err := family.pin(ctx, b.Modules)
	if err != nil {
		return "", err
	}
	folder, err := b.ensure(ctx, p)
	if err != nil {
		return "", fmt.Errorf("build %s %s: %w", family.Name, p.version, err)
	}
	return folder, nil
}

// Ready reports whether all families are in the cache.
func (b Builder) Ready(ctx context.Context) (bool, error) {
	families, err := Families()
	if err != nil {
		return false, err
	}
	for _, family := range families {
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

// folder returns the folder of a family in the cache.
func (b Builder) folder(p pinned) string { return filepath.Join(b.Cache, "bin", p.key) }

// Compile builds one main package of the module in source to the file out. It has no effect if the file is up to date.
// Processes that compile to the same file are serialized by a lock.
func Compile(ctx context.Context, source, pkg, out string) error {
	unlock, err := Lock(out + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := goCommand(ctx, source, "build", "-trimpath", "-ldflags=-s -w", "-o", out, pkg); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// ensure returns the folder of the family, and builds it if necessary.
func (b Builder) ensure(ctx context.Context, p pinned) (string, error) {
	folder := b.folder(p)
	what := fmt.Sprintf("%s %s (%d programs)", p.Name, p.version, len(p.Programs))
	return folder, Once(folder, what, b.Progress, func(unfinished string) error { return p.compile(ctx, unfinished) })
}

// Once lets build fill a folder of the cache, unless the folder exists, and writes to progress what is built and how long it has taken. Processes that build
// the same folder are serialized by a lock. An interrupted build is not considered complete.
func Once(folder, what string, progress io.Writer, build func(unfinished string) error) error {
	if built(folder) {
		return nil
	}
	unlock, err := Lock(folder + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if built(folder) { // by the previous holder of the lock
		return nil
	}
	unfinished := folder + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	if err := report(what, progress, func() error { return build(unfinished) }); err != nil {
		return err
	}
	return os.Rename(unfinished, folder)
}

// report runs a build and writes its progress.
func report(what string, progress io.Writer, build func() error) error {
	started := time.Now()
	write := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) } //nolint:errcheck // progress is for the eye
	write("building %s", what)
	done := make(chan error, 1)
	go func() { done <- build() }()
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				write("built %s in %s", what, time.Since(started).Round(time.Second))
			}
			return err
		case <-ticker.C:
			write("building %s: %s so far", what, time.Since(started).Round(time.Second))
		}
	}
}

// compile builds all programs with one command, so that linking one overlaps with compiling the next, and gives each its configured name.
func (p pinned) compile(ctx context.Context, folder string) error {
	args := append(append([]string{"build"}, p.flags()...), "-o", folder+string(filepath.Separator))
	for _, program := range p.Programs {
		args = append(args, program.Package)
	}
	if _, err := goCommand(ctx, p.folder, args...); err != nil {
		return err
	}
	for _, program := range p.Programs {
		if err := os.Rename(filepath.Join(folder, program.executable()), filepath.Join(folder, program.Name)); err != nil {
			return err
		}
	}
	return nil
}

func built(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}

// Lock takes a file lock, which is released when the process exits at the latest. Processes that build into the same folder take one.
func Lock(path string) (unlock func(), err error) {
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
