package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// outFolder is the folder of the rows, below the repository.
const outFolder = "bench/out"

// Main is the main function of a bench: it measures, prints the table and writes the rows. It returns
// the exit status of the process: 0 also when goals are missed, 1 when something could not be
// measured. On an interrupt or SIGTERM the context of measure ends, and measure removes everything
// that it has created.
func Main(name string, measure func(context.Context, *Report) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, New(name, os.Stderr), measure); err != nil {
		fmt.Fprintf(os.Stderr, "bench-%s: %v\n", name, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, r *Report, measure func(context.Context, *Report) error) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	began := time.Now()
	failed := measure(ctx, r)
	if failed != nil && ctx.Err() != nil {
		failed = fmt.Errorf("ended before everything was measured: %w", context.Cause(ctx))
	}
	if len(r.rows) == 0 {
		return failed
	}
	fmt.Printf("\nbench-%s, %s, %s\n", r.name, began.Format(time.DateOnly), conditions(ctx, source))
	if err := r.Print(os.Stdout); err != nil || failed != nil {
		return joined(failed, err)
	}
	path, err := r.Write(filepath.Join(source, outFolder))
	if err == nil {
		r.Doing("%s, after %v", path, time.Since(began).Round(time.Second))
	}
	return err
}

// joined returns the first error that is not nil.
func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// conditions describes the conditions of the figures: commit, machine, and its other load.
func conditions(ctx context.Context, source string) string {
	parts := []string{"commit " + commit(ctx, source), fmt.Sprintf("%d processors", runtime.NumCPU())}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		parts = append(parts, model)
	}
	if memory := field("/proc/meminfo", "MemTotal"); memory != "" {
		var kib int
		if _, err := fmt.Sscanf(memory, "%d kB", &kib); err == nil {
			parts = append(parts, fmt.Sprintf("%d GiB", (kib+1<<19)>>20))
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		parts = append(parts, "load "+strings.Join(strings.Fields(string(text))[:2], " ")+" in the last 1 and 5 minutes")
	}
	return strings.Join(append(parts, runtime.Version()), ", ")
}

// commit returns the commit of the tree, with a plus when the tree has uncommitted changes.
func commit(ctx context.Context, source string) string {
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "git", "-C", source, "describe", "--always", "--exclude=*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// field returns the first value of the key in a file of lines "key: value".
func field(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
