package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func run(t *testing.T, dir, line string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := root()
	command.SetOut(&out)
	command.SetArgs(append([]string{"--dir", dir}, strings.Fields(line)...))
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCommands runs every command on a machine and compares the state afterwards.
func TestCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "machine")
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Machine: "h100x2"}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"machines", "xid 79 --gpu 1", "xid 31 --gi 7 --ci 0", "ecc --corrected 3 --uncorrected 1", "remap --pending --uncorrectable 2",
		"link-down --link 4", "latency --create 1s --destroy 1ms", "reset",
		"sense --utilization 90 --power 300000 --energy 5", "link-errors --link 3 --count 4",
		"process start 12 --memory 1024", "process end 12", "process start 13 --gpu 1 --gi 2 --ci 0",
		"fail nvidia-smi:set-timeslice 4 1", "reset",
		"fail nvmlDeviceGetName 999 2", "fail nvmlDeviceGetUUID 15", "slow nvmlDeviceGetName 20ms",
		"ecc --gpu 0 --uncorrected 1 --gi -1", "link-up --link 4", "retire --pages 2", "slow-down --heat --power", "slow-down", "fabric --state 2",
		"require-reset", "find", "lost", "heal", "fail nvidia-smi:gpu-reset 15 1", "storm 31 --rate 1000 --duration 20ms",
		"driver remove", "reboot", "driver restore", "lost --gpu 1", "driver set 570.10",
	} {
		if _, err := run(t, dir, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	out, err := run(t, dir, "state")
	if err != nil {
		t.Fatal(err)
	}
	var got fakegpu.State
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := []fakegpu.Fault{
		{Function: "nvmlDeviceGetName", Code: 999, Count: 2, DelayMS: 20}, {Function: "nvmlDeviceGetUUID", Code: 15, Count: fakegpu.Forever},
		{Function: "fakegpuReset", Code: 15, Count: 1},
	}
	if diff := cmp.Diff(want, got.Faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if got.DriverVersion != "570.10" || !got.DriverLoaded || !got.GPUs[1].Lost || got.GPUs[0].Lost {
		t.Errorf("state: %+v", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "machine")
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Machine: "t4x1"}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"init --machine h100x3", "init --driver-version latest", "xid many", "xid 79 --gpu 1", "lost --gpu -1", "link-down --link 18",
		"fail nvmlGetName 1", "fail nvmlDeviceGetName one", "slow nvmlDeviceGetName soon", "driver set latest", "state extra",
		"ecc --gi 3 --uncorrected 1", "fabric --state 2", "link-up --link -1", "storm 31 --rate 0", "heal --gpu 1",
		"sense --utilization 101", "link-errors --link 18", "process start self", "process end 12",
	} {
		if out, err := run(t, dir, line); err == nil {
			t.Errorf("%s was accepted: %s", line, out)
		}
	}
	if _, err := run(t, t.TempDir(), "state"); err == nil {
		t.Error("the state of an empty folder was read")
	}
}
