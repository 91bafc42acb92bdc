package toolkit

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/containerd"
	"github.com/tessera-gpu/tessera/installer/host/cri"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

const (
	main    = "/etc/containerd/config.toml"
	section = "[plugins.\"io.containerd.grpc.v1.cri\"]\n"
	usual   = "# The administrator's own words.\nversion = 2\n\n" + section + "  sandbox_image = \"registry.k8s.io/pause:3.10\" # pinned\n" +
		"  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n    SystemdCgroup = true\n"
)

// daemon simulates containerd: it reads its configuration when it starts, and fails to start with an invalid one.
type daemon struct {
	mutex   sync.Mutex
	version string
	main    string
	roots   host.Roots
	running containerd.Config
	starts  int
	dead    bool
	// refuses, if set, returns why the daemon does not start with a configuration.
	refuses func(containerd.Config) error
}

func (d *daemon) Status(context.Context) (cri.Status, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.dead {
		return cri.Status{}, errors.New("connection refused")
	}
	return cri.Status{Name: "containerd", Version: d.version, CDI: d.running.CDI("/var/run/cdi"), Folders: []string{"/etc/cdi", "/var/run/cdi"}}, nil
}

func (d *daemon) Restart(context.Context) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.starts++
	config, err := containerd.Load(containerd.OnHost{Roots: d.roots}, d.main)
	if err == nil && d.refuses != nil {
		err = d.refuses(config)
	}
	d.running, d.dead = config, err != nil
	return err
}

func (d *daemon) started() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.starts
}

// node returns a host with containerd 1.7 that runs with the given files.
func node(t *testing.T, mainFile string, files map[string]string) (Config, *daemon) {
	t.Helper()
	return nodeOn(t, disk.Host{}, t.TempDir(), mainFile, files)
}

// nodeOn is node with its root in the folder of the file system.
func nodeOn(t *testing.T, on disk.FileSystem, root, mainFile string, files map[string]string) (Config, *daemon) {
	t.Helper()
	roots := host.Roots{Host: root}
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := disk.MakeDurableFolder(on, filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Write(path, []byte(text), atomicfile.Options{Mode: 0o640, Files: on}); err != nil {
			t.Fatal(err)
		}
	}
	d := &daemon{version: "1.7.27", main: mainFile, roots: roots}
	if err := d.Restart(t.Context()); err != nil {
		t.Logf("containerd does not run: %v", err)
		d.dead = false
	}
	d.starts = 0
	return Config{Roots: roots, Main: mainFile, CDI: "/var/run/cdi", Runtime: d, Files: on}, d
}

// filesOf returns all files below a root.
func filesOf(t *testing.T, c Config) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(c.Roots.Host, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[c.Roots.OnHost(path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEnable(t *testing.T) {
	tests := map[string]struct {
		main  string
		files map[string]string
		// edited reports whether the main file is edited; drop is the path of the drop-in.
		edited bool
		drop   string
	}{
		"the usual":  {main, map[string]string{main: usual}, true, "/etc/containerd/conf.d/" + dropIn},
		"no file":    {main, nil, true, "/etc/containerd/conf.d/" + dropIn},
		"empty file": {main, map[string]string{main: ""}, true, "/etc/containerd/conf.d/" + dropIn},
		"only words": {main, map[string]string{main: "# nothing here yet\n"}, true, "/etc/containerd/conf.d/" + dropIn},
		"an import that covers it": {main, map[string]string{main: "imports = [\"/etc/containerd/conf.d/*.toml\"]\n" + usual}, false,
			"/etc/containerd/conf.d/" + dropIn},
		"an import of another folder": {main, map[string]string{main: "imports = [\"/etc/containerd/more/*.toml\"]\n" + usual}, false,
			"/etc/containerd/more/" + dropIn},
		"NVIDIA's drop-in comes before ours": {main, map[string]string{main: "imports = [\"/etc/containerd/conf.d/*.toml\"]\n" + usual,
			"/etc/containerd/conf.d/99-nvidia.toml": "version = 2\n" + section + "default_runtime_name = 'nvidia'\n"}, false, "/etc/containerd/conf.d/" + dropIn},
		"an import that is no folder of files": {main, map[string]string{main: "imports = [\"/etc/containerd/a.toml\"]\n" + usual,
			"/etc/containerd/a.toml": "version = 2\n"}, true, "/etc/containerd/conf.d/" + dropIn},
		"k3s imports a folder": {"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", map[string]string{
			"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "imports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d/*.toml\"]\n" + usual,
		}, false, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d/" + dropIn},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, d := node(t, test.main, test.files)
			before, base := filesOf(t, c), d.running
			result, _ := c.Once(t.Context())
			if !result.Done || !result.Changed || d.starts != 1 {
				t.Fatalf("%+v, %d restarts", result, d.starts)
			}
			if !d.running.CDI("/var/run/cdi") || c.Roots.OnHost(d.running.Owner) != test.drop {
				t.Errorf("containerd runs with CDI %t, by %s", d.running.CDI("/var/run/cdi"), d.running.Owner)
			}
			// Only CDI has changed for containerd, and no other file is edited without need.
			want := base.WithCDI("/var/run/cdi")
			if diff := cmp.Diff(want, d.running.Section); diff != "" {
				t.Errorf("section (-want +got):\n%s", diff)
			}
			after := filesOf(t, c)
			for path, text := range before {
				if after[path] != text && (path != test.main || !test.edited) {
					t.Errorf("%s has been changed", path)
				}
				for line := range strings.Lines(text) {
					if !strings.HasPrefix(line, "imports") && !strings.Contains(after[path], line) {
						t.Errorf("%s has lost the line %q", path, line)
					}
				}
			}
			// A second call changes nothing.
			result, _ = c.Once(t.Context())
			if !result.Done || result.Changed || d.starts != 1 {
				t.Errorf("the second time: %+v, %d restarts", result, d.starts)
			}
			// Removal restores the files and does not restart the runtime.
			if result := c.Remove(); !result.Done || !result.Changed || d.starts != 1 {
				t.Errorf("removal: %+v, %d restarts", result, d.starts)
			}
			if before[test.main] == "" {
				delete(before, test.main) // an empty file is as good as none
			}
			if diff := cmp.Diff(before, filesOf(t, c)); diff != "" {
				t.Errorf("after the removal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKeepsModeAndCopy(t *testing.T) {
	c, _ := node(t, main, map[string]string{main: usual})
	if result, _ := c.Once(t.Context()); !result.Done {
		t.Fatal(result)
	}
	info, err := os.Stat(filepath.Join(c.Roots.Host, main))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if got := filesOf(t, c)[main+kept]; got != usual {
		t.Errorf("the copy: %q", got)
	}
}

// TestRefuses checks that refused configurations are not changed.
func TestRefuses(t *testing.T) {
	tests := map[string]struct {
		main     string
		files    map[string]string
		version  string
		reason   string
		contains string
	}{
		"broken TOML":       {main, map[string]string{main: usual + "oops"}, "1.7.27", containerd.ConfigInvalid, main},
		"a broken import":   {main, map[string]string{main: "imports = ['/etc/x.toml']\n" + usual, "/etc/x.toml": "["}, "1.7.27", containerd.ConfigInvalid, "/etc/x.toml"},
		"format of 1":       {main, map[string]string{main: "[plugins.cri]\nsandbox_image = 'x'\n"}, "1.7.27", ConfigVersion, "migrate"},
		"overridden":        {main, map[string]string{main: "imports = ['/etc/a.toml']\n" + usual, "/etc/a.toml": "imports = ['/etc/b.toml']\n", "/etc/b.toml": section + "x = 1\n"}, "1.7.27", ConfigConflict, "enable_cdi"},
		"k3s":               {"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", map[string]string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": usual}, "1.7.27", ConfigGenerated, "k3s"},
		"RKE2":              {"/var/lib/rancher/rke2/agent/etc/containerd/config.toml", map[string]string{"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": usual}, "1.7.27", ConfigGenerated, "RKE2"},
		"k0s":               {main, map[string]string{main: "# k0s_managed=true\n" + usual}, "1.7.27", ConfigGenerated, "k0s"},
		"containerd 1.6":    {main, map[string]string{main: usual}, "1.6.36", RuntimeUnknown, "1.7"},
		"2.1, switched off": {main, map[string]string{main: usual}, "2.1.0", CDIDisabled, "enable_cdi"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, d := node(t, test.main, test.files)
			d.version = test.version
			before := filesOf(t, c)
			result, _ := c.Once(t.Context())
			if result.Done || result.Changed || result.Reason != test.reason || !strings.Contains(result.Message, test.contains) {
				t.Errorf("%+v", result)
			}
			if diff := cmp.Diff(before, filesOf(t, c)); diff != "" || d.starts != 0 {
				t.Errorf("%d restarts, files (-want +got):\n%s", d.starts, diff)
			}
		})
	}
}

// other is a runtime that reads CDI specs by default.
type other struct{ status cri.Status }

func (o other) Status(context.Context) (cri.Status, error) { return o.status, nil }
func (o other) Restart(context.Context) error              { panic("restarted without need") }

func TestRuntimesThatNeedNothing(t *testing.T) {
	c, _ := node(t, main, map[string]string{main: usual})
	before := filesOf(t, c)
	for _, status := range []cri.Status{
		{Name: "containerd", Version: "v2.2.1", CDI: true, Folders: []string{"/etc/cdi", "/var/run/cdi"}},
		{Name: "cri-o", Version: "1.33.4", CDI: true},
	} {
		c.Runtime = other{status}
		if result, folders := c.Once(t.Context()); !result.Done || result.Changed || len(folders) != 0 {
			t.Errorf("%s: %+v", status.Name, result)
		}
	}
	c.Runtime = other{cri.Status{Name: "docker", Version: "27"}}
	if result, _ := c.Once(t.Context()); result.Reason != RuntimeUnknown {
		t.Errorf("docker: %+v", result)
	}
	if diff := cmp.Diff(before, filesOf(t, c)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestReadOnly checks that in a read-only folder, as on image-based systems, no file is changed and the runtime is not restarted.
func TestReadOnly(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual})
	folder := filepath.Join(c.Roots.Host, "etc/containerd")
	if os.Geteuid() == 0 {
		readOnly(t, folder)
	} else if err := os.Chmod(folder, 0o555); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, c)
	if result, _ := c.Once(t.Context()); result.Reason != ConfigReadOnly || d.starts != 0 {
		t.Errorf("%+v, %d restarts", result, d.starts)
	}
	if diff := cmp.Diff(before, filesOf(t, c)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// readOnly mounts the folder read-only in a mount namespace of the test's thread, because root may write to any folder.
func readOnly(t *testing.T, folder string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread is of no more use to others
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Skipf("cannot make a mount namespace: %v", err)
	}
	for _, m := range []struct {
		source, target string
		flags          uintptr
	}{{"", "/", unix.MS_REC | unix.MS_PRIVATE}, {folder, folder, unix.MS_BIND}, {"", folder, unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY}} {
		if err := unix.Mount(m.source, m.target, "", m.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // on the same thread
		if err := unix.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestInTheWay checks a file at the path of the drop-in's folder.
func TestInTheWay(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual, "/etc/containerd/conf.d": "in the way"})
	before := filesOf(t, c)
	if result, _ := c.Once(t.Context()); result.Done || d.starts != 0 {
		t.Errorf("%+v, %d restarts", result, d.starts)
	}
	if diff := cmp.Diff(before, filesOf(t, c)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestRestartFails checks that a runtime that does not start with CDI gets its old configuration back, and that the same configuration is not retried.
func TestRestartFails(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual})
	before := filesOf(t, c)
	d.refuses = func(config containerd.Config) error {
		if config.CDI("/var/run/cdi") {
			return errors.New("plugin cri: no CDI on this machine")
		}
		return nil
	}
	result, _ := c.Once(t.Context())
	if result.Reason != RestartFailed || d.dead || d.starts != 2 || !strings.Contains(result.Message, "no CDI on this machine") {
		t.Fatalf("%+v, dead %t, %d restarts", result, d.dead, d.starts)
	}
	after := filesOf(t, c)
	delete(after, failed)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if result, _ := c.Once(t.Context()); result.Reason != RestartFailed || d.starts != 2 {
		t.Errorf("the second time: %+v, %d restarts", result, d.starts)
	}
	// The administrator fixes the configuration.
	d.refuses = nil
	if err := os.WriteFile(filepath.Join(c.Roots.Host, main), []byte(usual+"# repaired\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if result, _ := c.Once(t.Context()); !result.Done || d.starts != 3 {
		t.Errorf("after the repair: %+v, %d restarts", result, d.starts)
	}
	if _, there := filesOf(t, c)[failed]; there {
		t.Error("the failure is remembered although it is over")
	}
}

// TestCrashes checks that a crash after any write, and before the restart, is equivalent to a new start.
func TestCrashes(t *testing.T) {
	for steps := range 4 {
		c, d := node(t, main, map[string]string{main: usual})
		plan, err := Make(c.files(), c.Main, c.CDI)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.write(Plan{Write: plan.Write[:min(steps, len(plan.Write))]}); err != nil {
			t.Fatal(err)
		}
		if _, err := containerd.Load(containerd.OnHost{Roots: c.Roots}, main); err != nil {
			t.Errorf("after %d writes containerd would not start: %v", steps, err)
		}
		if result, _ := c.Once(t.Context()); !result.Done || !d.running.CDI("/var/run/cdi") || d.starts != 1 {
			t.Errorf("after %d writes: %+v, %d restarts", steps, result, d.starts)
		}
	}
}

func TestA17OverwrittenConfigurationIsRepaired(t *testing.T) {
	tests := map[string]struct {
		overwrite func(t *testing.T, c Config)
		// sandbox is the value that the section must have afterwards: the administrator's latest.
		sandbox string
	}{
		"the main file as it was": {func(t *testing.T, c Config) { overwrite(t, c, main, usual) }, "registry.k8s.io/pause:3.10"},
		"the main file, another": {func(t *testing.T, c Config) {
			overwrite(t, c, main, "version = 2\n"+section+"sandbox_image = 'mirror/pause:3'\n")
		}, "mirror/pause:3"},
		"the drop-in, spoilt": {func(t *testing.T, c Config) { overwrite(t, c, "/etc/containerd/conf.d/"+dropIn, "version = [") }, "registry.k8s.io/pause:3.10"},
		"the drop-in, gone": {func(t *testing.T, c Config) {
			if err := os.Remove(filepath.Join(c.Roots.Host, "etc/containerd/conf.d", dropIn)); err != nil {
				t.Fatal(err)
			}
		}, "registry.k8s.io/pause:3.10"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, d := node(t, main, map[string]string{main: usual})
			if result, _ := c.Once(t.Context()); !result.Done {
				t.Fatal(result)
			}
			test.overwrite(t, c)
			// Containerd still runs with CDI: no restart.
			result, _ := c.Once(t.Context())
			if !result.Done || !result.Changed || d.starts != 1 {
				t.Errorf("repair: %+v, %d restarts", result, d.starts)
			}
			loaded, err := containerd.Load(c.files(), main)
			if err != nil || !loaded.CDI("/var/run/cdi") || loaded.Section["sandbox_image"] != test.sandbox {
				t.Errorf("containerd would start with %v, error %v", loaded.Section, err)
			}
			// Containerd was restarted before the repair: it runs without CDI, and is restarted once.
			test.overwrite(t, c)
			if err := d.Restart(t.Context()); err != nil && name != "the drop-in, spoilt" {
				t.Fatal(err)
			}
			d.dead, d.starts = false, 0
			d.running.Section = nil
			if result, _ := c.Once(t.Context()); !result.Done || d.starts != 1 || !d.running.CDI("/var/run/cdi") {
				t.Errorf("repair after a restart: %+v, %d restarts", result, d.starts)
			}
		})
	}
}

func overwrite(t *testing.T, c Config, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.Roots.Host, path), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAdministratorEnablesCDI checks that the drop-in is removed without a restart when the administrator enables CDI.
func TestAdministratorEnablesCDI(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual})
	if result, _ := c.Once(t.Context()); !result.Done {
		t.Fatal(result)
	}
	text := strings.Replace(usual, section, section+"enable_cdi = true\n", 1)
	overwrite(t, c, main, text)
	if result, _ := c.Once(t.Context()); !result.Done || d.starts != 1 {
		t.Errorf("%+v, %d restarts", result, d.starts)
	}
	want := []string{main, main + kept}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(filesOf(t, c)))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	c, _ := node(t, main, map[string]string{main: usual})
	before := filesOf(t, c)
	if result := c.Check(t.Context()); result.Done || result.Reason != CDIDisabled {
		t.Errorf("before: %+v", result)
	}
	if diff := cmp.Diff(before, filesOf(t, c)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if result, _ := c.Once(t.Context()); !result.Done {
		t.Fatal(result)
	}
	if result := c.Check(t.Context()); !result.Done || result.Changed {
		t.Errorf("after: %+v", result)
	}
}

func TestUnreachable(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual})
	d.dead = true
	if result, _ := c.Once(t.Context()); result.Reason != RuntimeUnreachable || d.starts != 0 {
		t.Errorf("%+v, %d restarts", result, d.starts)
	}
}

func TestA17Watch(t *testing.T) {
	c, d := node(t, main, map[string]string{main: usual})
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	results := make(chan host.Result, 16)
	ended := make(chan host.Result, 1)
	go func() {
		result, err := c.Watch(ctx, func(r host.Result) { results <- r })
		if err != nil {
			t.Error(err)
		}
		ended <- result
	}()
	next := func(what string) host.Result {
		select {
		case r := <-results:
			return r
		case <-ctx.Done():
			t.Fatalf("%s: no report", what)
			return host.Result{}
		}
	}
	if first := next("start"); !first.Done || !first.Changed {
		t.Fatalf("start: %+v", first)
	}
	if second := next("second look"); second.Changed {
		t.Fatalf("second look: %+v", second)
	}
	overwrite(t, c, main, usual)
	if repaired := next("overwritten"); !repaired.Done || !repaired.Changed {
		t.Errorf("overwritten: %+v", repaired)
	}
	if loaded, err := containerd.Load(c.files(), main); err != nil || !loaded.CDI("/var/run/cdi") {
		t.Errorf("after the repair: %v, error %v", loaded.Section, err)
	}
	if n := d.started(); n != 1 {
		t.Errorf("%d restarts", n)
	}
	// An invalid edit ends the watch with an error.
	overwrite(t, c, main, "version = [")
	select {
	case result := <-ended:
		if result.Reason != containerd.ConfigInvalid {
			t.Errorf("broken: %+v", result)
		}
	case <-ctx.Done():
		t.Error("broken: it did not end")
	}
}

func TestService(t *testing.T) {
	root := t.TempDir()
	log := filepath.Join(root, "log")
	program := filepath.Join(root, "restart")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$1\" = bad ] && { echo no such unit; exit 5; }\necho \"$@\" > "+log+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := Service{Roots: host.Roots{Host: "/"}, Command: []string{program, "restart", "containerd"}}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "restart containerd\n" {
		t.Errorf("%q, error %v", text, err)
	}
	s.Command[1] = "bad"
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "no such unit") {
		t.Errorf("a unit that is not: %v", err)
	}
	for _, command := range [][]string{nil, {"no-such-program-here"}} {
		s.Command = command
		if err := s.Restart(t.Context()); err == nil {
			t.Errorf("%v: no error", command)
		}
	}
	if _, err := cri.Find(host.Roots{Host: root}, ""); err == nil {
		t.Error("a host without a runtime has one")
	}
}
