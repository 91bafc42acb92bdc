package unload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// world simulates the kernel's modules: a module with users cannot be removed, and users are counted.
type world struct {
	// uses are the modules that each loaded module uses; programs how many programs use it.
	uses     map[string][]string
	programs map[string]int
	removed  []string
	// mounts are in the order of mounting; busy ones do not go.
	mounts []string
	busy   string
	// onRemove, when set, runs before each removal.
	onRemove func(module string)
}

func (w *world) Loaded() ([]survey.Module, error) {
	var modules []survey.Module
	for _, name := range slices.Sorted(maps.Keys(w.uses)) {
		m := survey.Module{Name: name, Refs: w.programs[name]}
		for _, user := range slices.Sorted(maps.Keys(w.uses)) {
			if slices.Contains(w.uses[user], name) {
				m.By = append(m.By, user)
				m.Refs++
			}
		}
		modules = append(modules, m)
	}
	return modules, nil
}

func (w *world) Remove(_ context.Context, module string) error {
	if w.onRemove != nil {
		w.onRemove(module)
	}
	modules, err := w.Loaded()
	if err != nil {
		return err
	}
	for _, m := range modules {
		if m.Name == module && m.Refs > 0 {
			return fmt.Errorf("%w: %d references", ErrBusy, m.Refs)
		}
	}
	if _, there := w.uses[module]; !there {
		return fmt.Errorf("%s is not loaded", module)
	}
	delete(w.uses, module)
	w.removed = append(w.removed, module)
	return nil
}

func (w *world) Below(path string) ([]string, error) {
	var points []string
	for _, m := range w.mounts {
		if host.Below(m, path) {
			points = append(points, m)
		}
	}
	return points, nil
}

func (w *world) Unmount(path string) error {
	covered := slices.ContainsFunc(w.mounts, func(m string) bool { return m != path && host.Below(m, path) })
	if path == w.busy || covered {
		return ErrBusy
	}
	w.mounts = slices.DeleteFunc(w.mounts, func(m string) bool { return m == path })
	return nil
}

// node is a host with the fake kernel.
func node(t *testing.T, w *world) Config {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/driver/nvidia/version"), "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n")
	for i, m := range w.mounts {
		w.mounts[i] = filepath.Join(root, m)
	}
	if w.busy != "" {
		w.busy = filepath.Join(root, w.busy)
	}
	return Config{
		Roots:  host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Driver: "/run/nvidia/driver"},
		Kernel: w, Mounts: w, Processes: filepath.Join(root, "proc"), StateFile: "/run/nvidia/nvidia-driver.state",
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// process adds a program to a procfs.
func process(t *testing.T, proc string, pid int, command string, files ...string) {
	t.Helper()
	folder := filepath.Join(proc, fmt.Sprint(pid))
	write(t, filepath.Join(folder, "comm"), command+"\n")
	write(t, filepath.Join(folder, "fd", ".keep"), "")
	for i, file := range files {
		if err := os.Symlink(file, filepath.Join(folder, "fd", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

// loaded is a driver with all related modules.
func loaded() map[string][]string {
	return map[string][]string{
		"nvidia": nil, "nvidia_uvm": {"nvidia"}, "nvidia_modeset": {"nvidia"}, "nvidia_drm": {"nvidia_modeset", "nvidia"}, "nvidia_peermem": {"nvidia", "ib_core"},
		"nvidia_fs": {"nvidia"}, "gdrdrv": {"nvidia"}, "ib_core": nil, "ext4": nil,
	}
}

func TestUnload(t *testing.T) {
	w := &world{uses: loaded(), mounts: []string{"/run/nvidia/driver", "/run/nvidia/driver/proc", "/run/nvidia/driver/dev", "/run/nvidia/driver/dev/shm", "/run/nvidia/drivers"}}
	c := node(t, w)
	result := c.Run(t.Context())
	if !result.Done || !result.Changed {
		t.Fatalf("result: %+v", result)
	}
	if diff := cmp.Diff([]string{"ext4", "ib_core"}, slices.Sorted(maps.Keys(w.uses))); diff != "" {
		t.Errorf("still loaded (-want +got):\n%s", diff)
	}
	if w.removed[len(w.removed)-1] != "nvidia" {
		t.Errorf("removed %v", w.removed)
	}
	if diff := cmp.Diff([]string{filepath.Join(c.Roots.Host, "run/nvidia/drivers")}, w.mounts); diff != "" {
		t.Errorf("still mounted (-want +got):\n%s", diff)
	}
	again := c.Run(t.Context())
	if !again.Done || again.Changed {
		t.Errorf("the second time: %+v", again)
	}
}

func TestUnloadInUse(t *testing.T) {
	w := &world{uses: loaded(), programs: map[string]int{"nvidia": 3, "nvidia_uvm": 1}, mounts: []string{"/run/nvidia/driver"}}
	c := node(t, w)
	process(t, c.Processes, 4711, "python3", "/dev/null", "/dev/nvidiactl", "/dev/nvidia0")
	process(t, c.Processes, 12, "mps-server", "/run/nvidia/driver/dev/nvidia-caps/nvidia-cap3")
	process(t, c.Processes, 13, "innocent", "/dev/nvidia0.log", "/home/nvidia0", "/dev/shm/x")
	process(t, c.Processes, 14, "mapper")
	write(t, filepath.Join(c.Processes, "14/maps"), "7f0000000000-7f0000001000 rw-s 00000000 00:05 123  /dev/nvidia-uvm\n")
	process(t, c.Processes, 99, "tessera-node", "/dev/nvidiactl")
	if err := os.Symlink("99", filepath.Join(c.Processes, "self")); err != nil {
		t.Fatal(err)
	}
	result := c.Run(t.Context())
	if result.Done || result.Changed || result.Reason != ModuleInUse {
		t.Fatalf("result: %+v", result)
	}
	if want := "by mps-server (12), mapper (14), python3 (4711);"; !strings.Contains(result.Message, want) || !strings.Contains(result.Message, "570.86.10") {
		t.Errorf("message %q lacks %q", result.Message, want)
	}
	if len(w.removed) != 0 || len(w.mounts) != 1 {
		t.Errorf("removed %v, mounts %v: nothing may be touched", w.removed, w.mounts)
	}
}

func TestUnloadUsedByAModuleThatStays(t *testing.T) {
	w := &world{uses: map[string][]string{"nvidia": nil, "custom_video": {"nvidia"}}}
	if result := node(t, w).Run(t.Context()); result.Reason != ModuleInUse || !strings.Contains(result.Message, "custom_video") {
		t.Errorf("result: %+v", result)
	}
}

// TestUnloadRaced checks a process that opens the driver during the removal: removed modules stay removed, and a later run completes.
func TestUnloadRaced(t *testing.T) {
	w := &world{uses: loaded(), programs: map[string]int{}}
	c := node(t, w)
	w.onRemove = func(module string) {
		if module == "nvidia_uvm" && w.programs["nvidia_uvm"] == 0 {
			w.programs["nvidia_uvm"] = 1
			process(t, c.Processes, 77, "latecomer", "/dev/nvidia-uvm")
		}
	}
	result := c.Run(t.Context())
	if result.Reason != ModuleInUse || !result.Changed || !strings.Contains(result.Message, "latecomer (77)") {
		t.Fatalf("result: %+v", result)
	}
	w.onRemove, w.programs["nvidia_uvm"] = nil, 0
	if result := c.Run(t.Context()); !result.Done {
		t.Errorf("afterwards: %+v", result)
	}
}

func TestUnloadKeepsTheWantedDriver(t *testing.T) {
	w := &world{uses: loaded(), programs: map[string]int{"nvidia": 5}, mounts: []string{"/run/nvidia/driver", "/run/nvidia/driver/dev"}}
	c := node(t, w)
	c.Digest = "abc"
	write(t, filepath.Join(c.Roots.Host, "run/nvidia/nvidia-driver.state"), "abc\n")
	if result := c.Run(t.Context()); !result.Done || len(w.removed) != 0 || len(w.mounts) != 0 || !strings.Contains(result.Message, "is kept") {
		t.Errorf("result: %+v, removed %v, mounts %v", result, w.removed, w.mounts)
	}
	c.Digest = "other"
	if result := c.Run(t.Context()); result.Reason != ModuleInUse {
		t.Errorf("another driver: %+v", result)
	}
	delete(w.uses, "nvidia")
	c.Digest = "abc"
	w.programs = nil
	if result := c.Run(t.Context()); !result.Done || slices.Contains(slices.Sorted(maps.Keys(w.uses)), "nvidia_uvm") {
		t.Errorf("a state file without a driver: %+v, still loaded %v", result, w.uses)
	}
}

// TestUnloadWithdrawsReadiness checks that the files are removed in which a driver container that was killed reports that it is ready: sidecars of the
// next pod wait for them (gpu-driver-container ubuntu24.04/nvidia-driver:798).
func TestUnloadWithdrawsReadiness(t *testing.T) {
	for _, name := range []string{".driver-ctr-ready", ".driver-daemons-status"} {
		c := node(t, &world{})
		c.Validations = "/run/nvidia/validations"
		file := filepath.Join(c.Roots.Host, c.Validations, name)
		write(t, file, "Ready\n")
		if result := c.Run(t.Context()); !result.Done {
			t.Errorf("result: %+v", result)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnloadClearsTheFirmwarePath checks that the firmware search path of a former driver container is cleared with its driver, and no other: a
// precompiled RHEL image installs its firmware only where none is set (gpu-driver-container rhel9/precompiled/nvidia-driver:234-244).
func TestUnloadClearsTheFirmwarePath(t *testing.T) {
	const own = "/run/nvidia/driver/lib/firmware"
	for _, c := range []struct{ path, state, want string }{
		{own, "", ""}, {own, "digest", own}, {"/var/lib/firmware", "", "/var/lib/firmware"},
	} {
		w := &world{uses: map[string][]string{"nvidia": nil}}
		config := node(t, w)
		config.FirmwarePath, config.Digest = own, "digest"
		config.Roots.Sys = filepath.Join(config.Roots.Host, "sys")
		file := filepath.Join(config.Roots.Sys, "module/firmware_class/parameters/path")
		write(t, file, c.path+"\n")
		write(t, filepath.Join(config.Roots.Host, config.StateFile), c.state+"\n")
		if result := config.Run(t.Context()); !result.Done {
			t.Errorf("result: %+v", result)
		}
		if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != c.want {
			t.Errorf("path %s with the stored digest %q becomes %q, want %q: %v", c.path, c.state, text, c.want, err)
		}
	}
}

func TestUnloadRootBusy(t *testing.T) {
	w := &world{mounts: []string{"/run/nvidia/driver", "/run/nvidia/driver/dev"}, busy: "/run/nvidia/driver"}
	result := node(t, w).Run(t.Context())
	if result.Reason != RootBusy || !strings.Contains(result.Message, "uses /run/nvidia/driver ") || len(w.mounts) != 1 {
		t.Errorf("result: %+v, mounts %v", result, w.mounts)
	}
}

func TestUnloadNouveau(t *testing.T) {
	w := &world{uses: map[string][]string{"nouveau": nil, "ttm": nil}}
	if result := node(t, w).Run(t.Context()); !result.Done || len(w.uses) != 1 {
		t.Errorf("result: %+v, loaded %v", result, w.uses)
	}
}

func TestUnloadWithoutProcesses(t *testing.T) {
	c := node(t, &world{})
	c.Processes = filepath.Join(c.Processes, "missing")
	if result := c.Run(t.Context()); result.Done || result.Reason != "Error" {
		t.Errorf("result: %+v: without a list of processes the driver must count as in use", result)
	}
}

func TestSimulated(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "kernel")
	script := "#!/bin/sh\n[ \"$1\" = rmmod ] || exit 3\ncase $2 in\nbusy) echo held by job 7; exit 16;;\nbroken) echo oops; exit 1;;\nesac\necho \"$2\" >> " + folder + "/removed\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := Simulated{Program: program}
	if err := s.Remove(t.Context(), "nvidia"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "busy"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "job 7") {
		t.Errorf("busy: %v", err)
	}
	if err := s.Remove(t.Context(), "broken"); err == nil || errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "oops") {
		t.Errorf("broken: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "removed")); err != nil || string(text) != "nvidia\n" {
		t.Errorf("removed %q, error %v", text, err)
	}
}

func TestMountTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	write(t, file, "22 1 0:20 / / rw shared:1 - ext4 /dev/x rw\n"+
		`30 22 0:30 / /host/run/nvidia/driver rw shared:2 - overlay o rw`+"\n"+
		`31 30 0:31 / /host/run/nvidia/driver/my\040disk rw shared:3 - tmpfs t rw`+"\n"+
		`32 22 0:32 / /host/run/nvidia/driver2 rw shared:3 - tmpfs t rw`+"\n")
	got, err := MountTable{File: file}.Below("/host/run/nvidia/driver")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/host/run/nvidia/driver", "/host/run/nvidia/driver/my disk"}, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}
