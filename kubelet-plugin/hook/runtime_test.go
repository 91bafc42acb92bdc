package hook

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// built returns the program that runs the hooks, built as it is released.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), Program)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "../../cmd/tessera-hook")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", Program, err, out)
	}
	return path
}

// driverHooks are the hooks of a driver with one library, as in a spec.
var driverHooks = [][]string{{
	All, "--host-driver-version", "580.65.06", "--folder", driverFolder,
	"--link", "libcuda.so.580.65.06::" + driverFolder + "/libcuda.so.1", "--link", "libcuda.so.1::" + driverFolder + "/libcuda.so",
}}

// configure writes the configuration of a container that runs the command with a driver's library
// mounted from the host and the hooks of the program; without a program there are no hooks.
func (b bundle) configure(program, library string, command ...string) {
	b.t.Helper()
	type object = map[string]any
	var hooks []object
	if program != "" {
		for _, args := range driverHooks {
			hooks = append(hooks, object{"path": program, "args": append([]string{Program}, args...)})
		}
	}
	config, err := json.Marshal(object{
		"ociVersion": "1.1.0",
		"process":    object{"args": command, "cwd": "/", "user": object{"uid": 1000, "gid": 1000}, "noNewPrivileges": true},
		"root":       object{"path": "rootfs", "readonly": true},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": driverFolder + "/libcuda.so.580.65.06", "type": "bind", "source": library, "options": []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}},
		},
		"hooks": object{"createContainer": hooks},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "network"}}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.path, "config.json"), config, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// command runs the container to its end.
func (b bundle) command() *exec.Cmd {
	id := filepath.Base(filepath.Dir(b.path)) + "-" + filepath.Base(b.path)
	return exec.CommandContext(b.t.Context(), "runc", "--root", filepath.Join(filepath.Dir(b.path), "runc"), "run", "--bundle", b.path, id)
}

// start runs the container to its end and returns what it printed.
func (b bundle) start() (string, error) {
	b.t.Helper()
	out, err := b.command().CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// newContainer returns a bundle for runc.
func newContainer(t *testing.T) bundle {
	t.Helper()
	needRoot(t, "runs containers")
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc")
	}
	return newBundle(t)
}

// hostLibrary builds a driver's library on the host.
func hostLibrary(t *testing.T) string {
	t.Helper()
	host := newBundle(t)
	host.library("/libcuda.so", "libcuda.so.1", "driver")
	return filepath.Join(host.root, "libcuda.so")
}

// The real program with a real runtime: the unprivileged program in a read-only root finds the driver by name.
func TestRunc(t *testing.T) {
	b := newContainer(t)
	b.glibc()
	library := hostLibrary(t)
	b.configure("", library, "/ask", "libcuda.so.1")
	if out, err := b.start(); err == nil || !strings.Contains(out, "cannot open shared object file") {
		t.Fatalf("without hooks: got %v %q, want that the driver is not found", err, out)
	}
	b.configure(built(t), library, "/ask", "libcuda.so.1")
	if out, err := b.start(); err != nil || out != "driver from "+driverFolder+"/libcuda.so.1" {
		t.Errorf("with hooks: got %v %q, want the driver", err, out)
	}
}

// mapUsers runs the container in a user namespace and changes the owner of its root to the users in it.
func (b bundle) mapUsers() {
	b.t.Helper()
	const first = 100000
	path := filepath.Join(b.path, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var config struct {
		Rest  map[string]any `json:"-"`
		Linux struct {
			Namespaces  []map[string]string `json:"namespaces"`
			UIDMappings []map[string]int    `json:"uidMappings"`
			GIDMappings []map[string]int    `json:"gidMappings"`
		} `json:"linux"`
	}
	if err := errors.Join(json.Unmarshal(text, &config), json.Unmarshal(text, &config.Rest)); err != nil {
		b.t.Fatal(err)
	}
	users := []map[string]int{{"containerID": 0, "hostID": first, "size": 65536}}
	config.Linux.Namespaces = append(config.Linux.Namespaces, map[string]string{"type": "user"})
	config.Linux.UIDMappings, config.Linux.GIDMappings = users, users
	config.Rest["linux"] = config.Linux
	if text, err = json.Marshal(config.Rest); err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, text, 0o644), os.Chmod(path, 0o644)); err != nil {
		b.t.Fatal(err)
	}
	err = filepath.WalkDir(b.root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, first, first))
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// In a pod with a user namespace the hooks run without any privilege on the host.
func TestRuncUserNamespace(t *testing.T) {
	b := newContainer(t)
	b.glibc()
	program, library := built(t), hostLibrary(t)
	for _, path := range []string{b.path, program, library} {
		for ; path != os.TempDir(); path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.configure(program, library, "/ask", "libcuda.so.1")
	b.mapUsers()
	if out, err := b.start(); err != nil || out != "driver from "+driverFolder+"/libcuda.so.1" {
		t.Errorf("with hooks: got %v %q, want the driver", err, out)
	}
}

// An image with only one static program starts too.
func TestRuncStaticImage(t *testing.T) {
	b := newContainer(t)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox as a static program")
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	b.write("/busybox", string(program))
	if err := os.Chmod(filepath.Join(b.root, "busybox"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.configure(built(t), hostLibrary(t), "/busybox", "echo", "started")
	if out, err := b.start(); err != nil || out != "started" {
		t.Errorf("got %v %q, want that it starts", err, out)
	}
}

// The cost of the hooks, for the log: no time is asserted.
func TestCost(t *testing.T) {
	b := newContainer(t)
	b.glibc()
	program, library := built(t), hostLibrary(t)
	// As many libraries as in a large image.
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range libraryNames(500) {
		b.write("/usr/lib/"+name+".1.0", string(content))
		b.link(name+".1.0", "/usr/lib/"+name+".1")
	}
	b.configure("", library, "/ask", "libcuda.so.1")
	without := measure(func() *exec.Cmd { return b.command() })
	b.configure(program, library, "/ask", "libcuda.so.1")
	with := measure(func() *exec.Cmd { return b.command() })
	t.Logf("start and end of a container, image with 500 libraries: %v without hooks, %v with hooks", without, with)
	for _, args := range driverHooks {
		t.Logf("%s alone: %v", args[0], measure(func() *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Stdin = bytes.NewReader(b.state())
			return cmd
		}))
	}
}

// cost is a median of several runs. On a busy machine the CPU time is more meaningful than the elapsed time.
type cost struct{ passed, worked time.Duration }

// String returns the cost for the log.
func (c cost) String() string {
	return fmt.Sprintf("%v (%v of processor time)", c.passed.Round(100*time.Microsecond), c.worked.Round(100*time.Microsecond))
}

func measure(command func() *exec.Cmd) cost {
	var passed, worked []time.Duration
	for range 5 {
		cmd := command()
		start := time.Now()
		// Without its hooks the program in the container fails, as expected.
		_ = cmd.Run()
		passed = append(passed, time.Since(start))
		worked = append(worked, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	slices.Sort(passed)
	slices.Sort(worked)
	return cost{passed: passed[len(passed)/2], worked: worked[len(worked)/2]}
}

func libraryNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, "libfiller"+string(rune('a'+i%26))+strings.Repeat("x", i/26)+".so")
	}
	return names
}

// The program requires nothing of the host that runs it, with any C library.
func TestTheProgramIsStatic(t *testing.T) {
	program, err := elf.Open(built(t))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %v", segment.Type)
		}
	}
}
