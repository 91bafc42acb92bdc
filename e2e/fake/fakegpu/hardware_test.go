package fakegpu

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/e2e/hardware/nvmlcalls"
)

// captures returns the folder of the recording of a machine: of an H100 SXM and an H200 SXM, each alone in a virtual machine, with driver 580.159.04.
// e2e/hardware made them; UUIDs and serial numbers are replaced.
func captures(machine string) string {
	return filepath.Join("testdata", strings.TrimSuffix(machine, "x1")+"-580.159.04")
}

var recordedMachines = []string{"h100x1", "h200x1"}

// differences are the calls that the fake answers in another way than the hardware, with the reason.
var differences = []struct{ calls, reason string }{
	{`^nvmlSystemGetDriverVersion|^nvmlSystemGetNVMLVersion|^nvmlSystemGetDriverBranch`, "another driver"},
	{`^nvmlDeviceGet(UUID|Serial|BoardPartNumber|ModuleId|PciInfo_v3)`, "another GPU"},
	{`^nvmlDeviceGet(Temperature|PowerUsage|TotalEnergyConsumption|ClockInfo|PersistenceMode|DecoderUtilization|EncoderUtilization)`, "a state, not a form"},
	{`^nvmlDeviceGet(MemoryInfo|BAR1MemoryInfo|RowRemapperHistogram)`, "the fake reserves no memory for the driver"},
	{`^nvmlDeviceGetGpuInstanceProfileInfoV?\(17`, "the header of the fake has one profile more than that of the driver"},
	{`^nvmlDeviceGetTopologyCommonAncestor\(itself`, "the agent queries pairs of GPUs only"},
	{`^nvmlDeviceGetSupportedEventTypes`, "the fake has the events that the agent registers"},
	{`^nvmlDeviceGetFieldValues\((83|186)\)`, "energy and power are states"},
}

// TestAnswersOfHardware compares NVML, call by call, with hardware. A function that the fake does not have returns NOT_SUPPORTED; so does a field.
func TestAnswersOfHardware(t *testing.T) {
	for _, machine := range recordedMachines {
		t.Run(machine, func(t *testing.T) { compareAnswers(t, machine) })
	}
}

func compareAnswers(t *testing.T, machine string) {
	t.Helper()
	withNVML(t, Spec{Machine: machine}, func(t *testing.T, dir string, lib nvml.Interface) {
		must(t, Virtualize(dir, 0, Passthrough, false))
		data, err := os.ReadFile(filepath.Join(captures(machine), "calls.json"))
		must(t, err)
		var recorded nvmlcalls.Recording
		must(t, json.Unmarshal(data, &recorded))
		fake, ret := nvmlcalls.Record(lib, 0, nil)
		succeed(t, "Record", ret)
		data, err = json.Marshal(fake) // for equal types of values
		must(t, err)
		must(t, json.Unmarshal(data, &fake))
		answers := map[string]nvmlcalls.Call{}
		for _, c := range fake.Calls {
			answers[c.Key()] = c
		}
		used := map[string]bool{}
		for _, want := range recorded.Calls {
			got, has := answers[want.Key()]
			if !has {
				t.Errorf("%s is no longer queried: record the hardware again", want.Key())
			}
			if reason := differs(want, got); reason != "" && !explained(want.Key(), used) {
				t.Errorf("%s: %s", want.Key(), reason)
			}
		}
		for _, d := range differences {
			if !used[d.calls] {
				t.Errorf("%s (%s): no such difference", d.calls, d.reason)
			}
		}
	})
}

// differs returns how the answer of the fake differs; empty if it does not, or if the fake lacks the function or field.
func differs(want, got nvmlcalls.Call) string {
	if got.Code == int(nvml.ERROR_NOT_SUPPORTED) && lacks(want.Function) || unknownField(got) {
		return ""
	}
	if got.Code != want.Code {
		return name(nvml.Return(got.Code)) + " instead of " + name(nvml.Return(want.Code))
	}
	if unknownField(want) { // the other members have no meaning
		return "the field is supported"
	}
	dropTimes(want, got)
	return cmp.Diff(want.Value, got.Value)
}

// dropTimes removes the times of field values.
func dropTimes(calls ...nvmlcalls.Call) {
	for _, c := range calls {
		if fields, is := c.Value.(map[string]any); is {
			delete(fields, "Timestamp")
			delete(fields, "LatencyUsec")
		}
	}
}

// unknownField reports whether the call is the query of a field that does not exist.
func unknownField(c nvmlcalls.Call) bool {
	field, is := c.Value.(map[string]any)
	return is && c.Function == "nvmlDeviceGetFieldValues" && field["NvmlReturn"] != float64(nvml.SUCCESS)
}

// nvmlSource returns the source of the engine's NVML.
var nvmlSource = sync.OnceValues(func() (string, error) {
	files, err := filepath.Glob("engine/nvml/*.c")
	var all strings.Builder
	for _, file := range files {
		source, reading := os.ReadFile(file)
		all.Write(source)
		err = errors.Join(err, reading)
	}
	return all.String(), err
})

// lacks reports whether the engine does not define the function.
func lacks(function string) bool {
	source, err := nvmlSource()
	return err == nil && !strings.Contains(source, "nvmlReturn_t "+function+"(")
}

func explained(key string, used map[string]bool) bool {
	for _, d := range differences {
		if regexp.MustCompile(d.calls).MatchString(key) {
			used[d.calls] = true
			return true
		}
	}
	return false
}

// TestMPSAnswersOfHardware gives the daemon the commands of a capture, one after the other, and compares the answers.
func TestMPSAnswersOfHardware(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(captures("h100x1"), "mps-multiuser.txt"))
	must(t, err)
	const itsServer = "2372"
	d := newMPS(t, install(t, Spec{Machine: "h100x1"})).start(t, []string{"-multiuser-server"}, nil)
	compared := 0
	for exchange := range strings.SplitSeq(string(data), "> ") {
		line, want, _ := strings.Cut(exchange, "\n")
		if exchange == "" || !comparableExchange(exchange) {
			continue
		}
		compared++
		server := d.send(t, "get_server_list")
		line, want = strings.ReplaceAll(line, itsServer, server), strings.ReplaceAll(want, itsServer, server)
		if diff := cmp.Diff(strings.TrimSpace(strings.TrimSuffix(want, "[status 0]\n")), d.send(t, line)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
	if compared < 50 {
		t.Errorf("only %d commands were compared", compared)
	}
}

// comparableExchange reports whether the fake has the command, and the capture's answer names no client: there is none here.
func comparableExchange(exchange string) bool {
	for _, lacking := range []string{"device_query", "get_device_client_list", "set_default_client_priority", "get_default_client_priority", "terminate_client", "quit"} {
		if strings.HasPrefix(exchange, lacking) {
			return false
		}
	}
	return !strings.Contains(exchange, "cudaclient") && !strings.HasPrefix(exchange, "get_client_list 2372")
}

// TestSMIOfHardware compares nvidia-smi with captures.
func TestSMIOfHardware(t *testing.T) {
	for _, machine := range recordedMachines {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			compareSMI(t, machine)
		})
	}
}

func compareSMI(t *testing.T, machine string) {
	t.Helper()
	dir := install(t, Spec{Machine: machine})
	for file, command := range map[string]string{
		"mig-lgip.txt": "nvidia-smi mig -lgip", "mig-lgipp.txt": "nvidia-smi mig -lgipp", "compute-policy-l.txt": "nvidia-smi compute-policy -l",
	} {
		want, err := os.ReadFile(filepath.Join(captures(machine), file))
		must(t, err)
		if diff := cmp.Diff("$ "+command+"\n"+string(want), play(t, dir, "$ "+command+"\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}
