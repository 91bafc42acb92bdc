package fakegpu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// go-nvml binds its symbols once per process, so every machine of a test needs a separate process:
// the test runs its own binary again with this variable set to the machine's folder.
const folderVariable = "FAKEGPU_TEST_FOLDER"

// install installs only the driver of the machine into a temporary folder.
func install(t *testing.T, spec Spec) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "machine")
	if err := InstallDriver(t.Context(), dir, spec); err != nil {
		t.Fatal(err)
	}
	return dir
}

// installAll installs the whole machine into a temporary folder; it requires root.
func installAll(t *testing.T, spec Spec) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "machine")
	err := Install(t.Context(), dir, spec)
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// inClient returns the folder of the machine, and whether this process is the client.
func inClient() (string, bool) {
	dir := os.Getenv(folderVariable)
	return dir, dir != ""
}

// clientCommand is the test's own binary, set to run the calling test as a client of the machine.
func clientCommand(t *testing.T, dir string, env ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(t.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	command := exec.CommandContext(t.Context(), executable, "-test.run="+strings.Join(parts, "/"), "-test.v")
	// A program built with the race detector waits for a second before it exits, unless this option
	// is set.
	command.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0", folderVariable+"="+dir), env...)
	return command
}

// runClient runs the calling test as client and reports its result.
func runClient(t *testing.T, dir string, env ...string) {
	t.Helper()
	finish(t, clientCommand(t, dir, env...))
}

// runContainer runs the calling test as client in a new mount namespace.
func runContainer(t *testing.T, dir string, env ...string) {
	t.Helper()
	command := clientCommand(t, dir, env...)
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	finish(t, command) // users who may create device nodes may also do this
}

func finish(t *testing.T, command *exec.Cmd) {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("client: %v\n%s", err, output)
	}
}

// withNVML runs f in a client process of the machine, with a session.
func withNVML(t *testing.T, spec Spec, f func(t *testing.T, dir string, lib nvml.Interface)) {
	t.Helper()
	dir, client := inClient()
	if !client {
		runClient(t, install(t, spec))
		return
	}
	f(t, dir, start(t, dir))
}

// start begins a session that ends with the test.
func start(t *testing.T, dir string) nvml.Interface {
	t.Helper()
	lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
	succeed(t, "Init", lib.Init())
	t.Cleanup(func() { succeed(t, "Shutdown", lib.Shutdown()) })
	return lib
}

func succeed(t *testing.T, what string, ret nvml.Return) {
	t.Helper()
	expect(t, what, ret, nvml.SUCCESS)
}

func expect(t *testing.T, what string, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, name(got), name(want))
	}
}

// name is the text of a code, also when no library is loaded.
func name(ret nvml.Return) string { return nvml.ErrorString(ret) }

func gpuAt(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	device, ret := lib.DeviceGetHandleByIndex(index)
	succeed(t, "DeviceGetHandleByIndex", ret)
	return device
}
