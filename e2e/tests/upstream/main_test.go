package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	_ "k8s.io/component-base/logs/json/register" // the log format json
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin"
)

// etcdVariable names the etcd that this program becomes when it is called as etcd.
const etcdVariable = "TESSERA_UPSTREAM_ETCD"

// TestMain sets the scene once: etcd on the path, everything temporary in one folder, and the output of
// the benchmark entry, which is long, in a file that is shown after a failure only.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "etcd" {
		fmt.Fprintln(os.Stderr, becomeEtcd()) //nolint:errcheck // on the way out
		os.Exit(1)
	}
	if err := run(m); err != nil {
		fmt.Fprintln(os.Stderr, err) //nolint:errcheck // on the way out
		os.Exit(1)
	}
}

// locateSources sets the variables by which kubernetes' test API server finds its files if it is compiled with -trimpath. The path of a source file then
// begins with its module, as below the module cache.
func locateSources() error {
	if _, file, _, _ := runtime.Caller(0); filepath.IsAbs(file) {
		return nil
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("find the module cache: %w", err)
	}
	return errors.Join(os.Setenv("TEST_SRCDIR", strings.TrimSpace(string(cache))), os.Setenv("TEST_WORKSPACE", "."))
}

func run(m *testing.M) error {
	if err := perf.InitTests(); err != nil {
		return fmt.Errorf("start scheduler_perf: %w", err)
	}
	// The default metrics keep the array they were made with: only an exchange in place reaches them.
	perf.PluginNames[slices.Index(perf.PluginNames, inTree)] = plugin.Name
	if err := locateSources(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "tessera-upstream-")
	if err != nil {
		return err
	}
	if err := prepareFolder(work); err != nil {
		return err
	}
	terminal := os.Stdout
	defer func() { os.Stdout = terminal }()
	log, err := os.Create(filepath.Join(work, "benchmark.log"))
	if err != nil {
		return err
	}
	progress = terminal
	os.Stdout = log
	if code := m.Run(); code != 0 {
		showFailures(terminal, log.Name())
		return fmt.Errorf("exit status %d; logs are kept in %s", code, work)
	}
	return os.RemoveAll(work)
}

// prepareFolder puts etcd on the path and all temporary files into work.
func prepareFolder(work string) error {
	source, err := binaries.Source()
	if err != nil {
		return err
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		return err
	}
	builder := binaries.Builder{Modules: filepath.Join(source, "e2e", "env", "lab", "modules"), Cache: cache, Progress: os.Stderr}
	etcd, err := builder.BuildOne(context.Background(), binaries.Etcd)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"bin", "tmp", "failed"} {
		if err := os.Mkdir(filepath.Join(work, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(self, filepath.Join(work, "bin", "etcd")); err != nil {
		return err
	}
	for name, value := range map[string]string{
		etcdVariable: filepath.Join(etcd, "etcd"),
		"PATH":       filepath.Join(work, "bin") + string(os.PathListSeparator) + os.Getenv("PATH"),
		"TMPDIR":     filepath.Join(work, "tmp"),
		"ARTIFACTS":  filepath.Join(work, "failed"), // upstream writes a log per workload and removes it on success
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// becomeEtcd turns this process into etcd, which then ends with the tests however they end.
func becomeEtcd() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("bind etcd to its parent: %w", err)
	}
	program := os.Getenv(etcdVariable)
	return fmt.Errorf("start %s: %w", program, unix.Exec(program, os.Args, os.Environ()))
}

// showFailures prints the benchmark's output without the lines that hold nothing but figures.
func showFailures(to io.Writer, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(to, err) //nolint:errcheck // the exit status reports it
		return
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "Benchmark") {
			fmt.Fprint(to, line) //nolint:errcheck // as above
		}
	}
}
