package migmode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
	"github.com/tessera-gpu/tessera/internal/host/smi"
)

// machine is GPUs that take a mode at a reset, as A100 does, or at once.
type machine struct {
	gpus []GPU
	// atOnce GPUs need no reset; deaf ones return success and change nothing; failing calls are named by their number, counted from 1.
	atOnce, deaf bool
	failing      map[int]error
	calls        []string
}

func (m *machine) call(format string, arguments ...any) error {
	m.calls = append(m.calls, fmt.Sprintf(format, arguments...))
	return m.failing[len(m.calls)]
}

func (m *machine) GPUs(context.Context) ([]GPU, error) { return slices.Clone(m.gpus), nil }

func (m *machine) Set(_ context.Context, uuid string, mode Mode) error {
	if err := m.call("set %s %s", uuid, mode); err != nil {
		return err
	}
	for i := range m.gpus {
		if m.gpus[i].UUID == uuid {
			m.gpus[i].Pending = mode
			if m.atOnce && !m.deaf {
				m.gpus[i].Current = mode
			}
		}
	}
	return nil
}

func (m *machine) Reset(_ context.Context, uuids []string) error {
	if err := m.call("reset %s", strings.Join(uuids, " ")); err != nil {
		return err
	}
	for i := range m.gpus {
		if slices.Contains(uuids, m.gpus[i].UUID) && !m.deaf {
			m.gpus[i].Current = m.gpus[i].Pending
		}
	}
	return nil
}

// mixed are two GPUs that must change, one that has the mode, and one without MIG.
func mixed() []GPU {
	return []GPU{{"a", Disabled, Disabled}, {"b", Enabled, Enabled}, {"c", Disabled, Disabled}, {"l", "", ""}}
}

func TestRun(t *testing.T) {
	busy := fmt.Errorf("%w: process 7", ErrInUse)
	done := []GPU{{"a", Enabled, Enabled}, {"b", Enabled, Enabled}, {"c", Enabled, Enabled}, {"l", "", ""}}
	tests := map[string]struct {
		machine machine
		want    []GPU
		calls   []string
		reason  string
		changed bool
	}{
		"with a reset": {machine{gpus: mixed()}, done, []string{"set a Enabled", "set c Enabled", "reset a c"}, "", true},
		"at once":      {machine{gpus: mixed(), atOnce: true}, done, []string{"set a Enabled", "set c Enabled"}, "", true},
		"done already": {machine{gpus: done}, done, nil, "", false},
		"pending since a crash": {machine{gpus: []GPU{{"a", Disabled, Enabled}}}, []GPU{{"a", Enabled, Enabled}},
			[]string{"set a Enabled", "reset a"}, "", true},
		"the second is busy": {machine{gpus: mixed(), failing: map[int]error{2: busy}}, mixed(),
			[]string{"set a Enabled", "set c Enabled", "set a Disabled"}, GPUInUse, false},
		"the second is busy, the first had changed": {machine{gpus: mixed(), atOnce: true, failing: map[int]error{2: busy}}, mixed(),
			[]string{"set a Enabled", "set c Enabled", "set a Disabled"}, GPUInUse, false},
		"the reset is refused": {machine{gpus: mixed(), failing: map[int]error{3: busy}}, mixed(),
			[]string{"set a Enabled", "set c Enabled", "reset a c", "set a Disabled", "set c Disabled"}, GPUInUse, false},
		"the reset changes nothing": {machine{gpus: mixed()[:1], deaf: true}, mixed()[:1],
			[]string{"set a Enabled", "reset a", "set a Disabled"}, NotChanged, false},
		"what was changed cannot be given back": {machine{gpus: mixed(), failing: map[int]error{3: busy, 4: errors.New("lost")}},
			[]GPU{{"a", Disabled, Enabled}, {"b", Enabled, Enabled}, {"c", Disabled, Disabled}, {"l", "", ""}},
			[]string{"set a Enabled", "set c Enabled", "reset a c", "set a Disabled", "set c Disabled"}, GPUInUse, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := test.machine
			result := Run(t.Context(), &m, Enabled)
			if result.Reason != test.reason || result.Done != (test.reason == "") || result.Changed != test.changed {
				t.Errorf("%+v", result)
			}
			if diff := cmp.Diff(test.want, m.gpus); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.calls, m.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
	if result := Run(t.Context(), &machine{}, "enabled"); result.Done {
		t.Errorf("a mode that is none: %+v", result)
	}
}

// The same with the driver's own program.
func TestSMI(t *testing.T) {
	dir := t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Machine: "a30x4l40sx4"}); err != nil {
		t.Fatal(err)
	}
	tool, err := survey.SMI(host.Roots{Host: dir, Driver: "/driver"})
	if err != nil {
		t.Fatal(err)
	}
	driver := SMI{Program: tool}
	counts := func() map[Mode]int {
		gpus, err := driver.GPUs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := map[Mode]int{}
		for _, gpu := range gpus {
			n[gpu.Current]++
		}
		return n
	}
	if diff := cmp.Diff(map[Mode]int{Disabled: 2, Enabled: 2, "": 4}, counts()); diff != "" {
		t.Fatalf("modes (-want +got):\n%s", diff)
	}
	if result := Run(t.Context(), driver, Enabled); !result.Done || !result.Changed {
		t.Fatalf("%+v", result)
	}
	if diff := cmp.Diff(map[Mode]int{Enabled: 4, "": 4}, counts()); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
	// Checks an instance that was not destroyed.
	if _, err := driver.run(t.Context(), "mig", "-i", "0", "-cgi", "1g.6gb"); err != nil {
		t.Fatal(err)
	}
	if result := Run(t.Context(), driver, Disabled); result.Reason != GPUInUse || result.Changed {
		t.Errorf("with an instance: %+v", result)
	}
	if diff := cmp.Diff(map[Mode]int{Enabled: 4, "": 4}, counts()); diff != "" {
		t.Errorf("modes after the failure (-want +got):\n%s", diff)
	}
	if _, err := driver.run(t.Context(), "mig", "-i", "0", "-dgi"); err != nil {
		t.Fatal(err)
	}
	if result := Run(t.Context(), driver, Disabled); !result.Done {
		t.Errorf("%+v", result)
	}
}

func TestSMIOfRoots(t *testing.T) {
	root := t.TempDir()
	if _, err := survey.SMI(host.Roots{Host: root, Driver: "/run/nvidia/driver"}); err == nil {
		t.Error("a host without a driver has nvidia-smi")
	}
	for _, path := range []string{"usr/bin/nvidia-smi", "usr/lib64/libnvidia-ml.so.1", "run/nvidia/driver/usr/bin/nvidia-smi", "run/nvidia/driver/opt/lib/nvml"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := survey.SMI(host.Roots{Host: root, Driver: "/run/nvidia/driver"})
	if err != nil || tool.Path != filepath.Join(root, "usr/bin/nvidia-smi") {
		t.Errorf("%+v, error %v: a driver root without the library is none", tool, err)
	}
	folder := filepath.Join(root, "run/nvidia/driver/usr/lib64")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/opt/lib/nvml", filepath.Join(folder, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	want := smi.Program{Path: filepath.Join(root, "run/nvidia/driver/usr/bin/nvidia-smi"), Library: filepath.Join(root, "run/nvidia/driver/opt/lib/nvml")}
	if tool, err = survey.SMI(host.Roots{Host: root, Driver: "/run/nvidia/driver"}); err != nil || tool != want {
		t.Errorf("%+v, error %v: an absolute link leads to the driver's own root", tool, err)
	}
}
