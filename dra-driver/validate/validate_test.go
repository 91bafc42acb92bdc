package validate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/dra-driver/cuda"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// TestMain runs as the computing process of one device if InProcess starts the test's program.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "device" {
		if failure := cuda.Compute(os.Getenv("VALIDATE_LIBCUDA"), os.Args[2]); failure != nil {
			if json.NewEncoder(os.Stdout).Encode(failure) != nil {
				os.Exit(2)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// machine installs a fake machine and returns its folder and a validation of it.
func machine(t *testing.T, name string, out *strings.Builder) (string, Config) {
	t.Helper()
	dir := t.TempDir()
	if err := fakegpu.InstallDriver(t.Context(), dir, fakegpu.Spec{Node: "node1", Machine: name}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VALIDATE_LIBCUDA", filepath.Join(filepath.Dir(fakegpu.Library(dir)), cuda.Library))
	gpus := func() ([]nvml.VisibleGPU, error) { return nvml.Visible(fakegpu.Library(dir)) }
	return dir, Config{GPUs: gpus, Compute: InProcess(os.Args[0], "device"), Out: out}
}

func smi(t *testing.T, dir string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), fakegpu.SMI(dir), args...).CombinedOutput(); err != nil {
		t.Fatalf("nvidia-smi %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Every GPU and MIG device computes, not only device 0 of CUDA: with a MIG device, CUDA in one process lists that device and no other.
func TestEveryDeviceComputes(t *testing.T) {
	const product = " (NVIDIA H100 80GB HBM3): "
	first, second := catalog.UUID("node1", 0), catalog.UUID("node1", 1)
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		mig     bool
		want    []string // lines; MIG-* is the UUID of a MIG device
		note    string
		fails   string
	}{
		"whole GPUs": {want: []string{first + product + "computed", second + product + "computed"}},
		"MIG mode without MIG devices": {
			prepare: func(t *testing.T, dir string) { smi(t, dir, "-i", "0", "-mig", "1") },
			want:    []string{first + product + "in MIG mode without MIG devices: the driver responds, nothing was computed", second + product + "computed"},
			note:    first + product + "in MIG mode without MIG devices: the driver responds, nothing was computed",
		},
		"MIG devices and a whole GPU": {
			prepare: func(t *testing.T, dir string) {
				smi(t, dir, "-i", "0", "-mig", "1")
				smi(t, dir, "mig", "-i", "0", "-cgi", "19,9", "-C")
			},
			mig:  true,
			want: []string{"MIG-* of " + first + product + "computed", "MIG-* of " + first + product + "computed", second + product + "computed"},
		},
		"no MIG device where one is required": {mig: true, fails: "the container has no MIG device"},
		"the second GPU in compute mode Prohibited": {
			prepare: func(t *testing.T, dir string) { smi(t, dir, "-i", "1", "-c", "PROHIBITED") },
			fails: "1 of 2 devices failed: " + second + product +
				"cuCtxCreate: CUDA_ERROR_DEVICE_UNAVAILABLE (46): compute mode Prohibited; set it with nvidia-smi -c DEFAULT",
		},
		"the second GPU lost": {
			prepare: func(t *testing.T, dir string) {
				if err := fakegpu.Lose(dir, 1); err != nil {
					t.Fatal(err)
				}
			},
			fails: "1 of 2 devices failed: GPU 1: nvmlDeviceGetHandleByIndex: ",
		},
		"another driver loaded": {
			prepare: func(t *testing.T, _ string) { t.Setenv("VALIDATE_LIBCUDA", "libabsent.so.1") },
			fails:   "2 of 2 devices failed: " + first + product + "dlopen: libabsent.so.1: cannot open shared object file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			dir, c := machine(t, "h100x2", &out)
			note := ""
			c.Note = func(text string) error { note = text; return nil }
			if c.MIG = test.mig; test.prepare != nil {
				test.prepare(t, dir)
			}
			err := Run(t.Context(), c)
			if test.fails != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.fails) {
					t.Fatalf("error %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(append(test.want, test.note), append(lines(out.String()), note)); diff != "" {
				t.Errorf("output and note (-want +got):\n%s", diff)
			}
		})
	}
}

// A claim of MIG devices that changes the mode of a GPU after it was listed is no fault of the GPU, as in a validation of MIG devices at the same time.
func TestRunWhileTheModeChanges(t *testing.T) {
	var out strings.Builder
	dir, c := machine(t, "h100x2", &out)
	list, listed := c.GPUs, 0
	c.GPUs = func() ([]nvml.VisibleGPU, error) {
		gpus, err := list()
		if listed++; listed == 1 {
			smi(t, dir, "-i", "0", "-mig", "1")
		}
		return gpus, err
	}
	c.Note = func(string) error { return nil }
	if err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := lines(out.String()); !strings.HasSuffix(got[0], inMIGMode) || !strings.HasSuffix(got[1], computed) {
		t.Errorf("output %q", got)
	}
}

// lines returns the lines of an output without the UUIDs of MIG devices.
func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range all {
		if strings.HasPrefix(line, "MIG-") {
			all[i] = "MIG-*" + line[strings.Index(line, " "):]
		}
	}
	return all
}

func TestNoGPUFails(t *testing.T) {
	c := Config{GPUs: func() ([]nvml.VisibleGPU, error) { return nil, nil }}
	if err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "the container has no GPU") {
		t.Errorf("error %v", err)
	}
}

// A device that other processes occupy is not a failed one, and its line has the reason; the same error of a device that is free is a failure.
func TestJudge(t *testing.T) {
	free, full, alone := target{free: 80 << 30}, target{free: 200 << 20}, target{free: 80 << 30, exclusive: true}
	type failure = cuda.Failure
	const unmet = ": the driver responds, nothing was computed"
	for name, test := range map[string]struct {
		target  target
		failure *failure
		err     error
		failed  bool
		text    string
	}{
		"memory in use": {full, &failure{Step: "cuCtxCreate", Code: outOfMemory}, nil, false, "its memory is in use, 200 MiB are free" + unmet},
		"memory free": {free, &failure{Step: "cuCtxCreate", Code: outOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY"}, nil, true,
			"cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY (2): memory is free and cannot be allocated; reset the GPU"},
		"exclusive": {alone, &failure{Step: "cuCtxCreate", Code: deviceUnavailable}, nil, false, "in exclusive use by another process" + unmet},
		"wrong data": {free, &failure{Step: "compare the kernel's result", Detail: "word 1"}, nil, true,
			"compare the kernel's result: word 1: the device returns wrong data; take the GPU out of service and replace it"},
		"fabric": {free, &failure{Step: "cuInit", Code: systemNotReady, Name: "CUDA_ERROR_SYSTEM_NOT_READY"}, nil, true,
			"cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802): the NVLink fabric is not ready; check the Fabric Manager on the node"},
		"an unlisted error": {free, &failure{Step: "cuInit", Code: 4242}, nil, true,
			"cuInit: unnamed CUDA error (4242): check the kernel log for XIDs, and reset the GPU"},
		"a crash": {free, nil, errors.New("signal: segmentation fault"), true,
			"signal: segmentation fault: check the kernel log for XIDs, and reset the GPU"},
	} {
		if diff := cmp.Diff(verdict{test.failed, test.text}, judge(test.target, test.failure, test.err), cmp.AllowUnexported(verdict{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The error names a few devices and counts the others: kubelet keeps the last 2 KiB of a log.
func TestManyFailuresAreCounted(t *testing.T) {
	gpus := make([]nvml.VisibleGPU, 16)
	for i := range gpus {
		gpus[i] = nvml.VisibleGPU{UUID: catalog.UUID("node1", i), Product: "NVIDIA H100 80GB HBM3"}
	}
	c := Config{
		GPUs: func() ([]nvml.VisibleGPU, error) { return gpus, nil },
		Compute: func(context.Context, string) (*cuda.Failure, error) {
			return &cuda.Failure{Step: "cuInit", Code: unknown, Name: "CUDA_ERROR_UNKNOWN"}, nil
		},
		Out: &strings.Builder{},
	}
	err := Run(t.Context(), c)
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if !strings.HasPrefix(text, "16 of 16 devices failed: ") || !strings.HasSuffix(text, "and 12 more") || len(text) > 2048 {
		t.Errorf("error %s", text)
	}
}

// A process that crashes or prints nonsense is an error, with what it printed last.
func TestProcessErrors(t *testing.T) {
	for script, want := range map[string]string{
		"echo lost >&2; exit 3": "the computing process ended: exit status 3: lost",
		"kill -SEGV $$":         "the computing process ended: signal: segmentation fault",
		"echo nonsense":         "decode the result of the computing process: ",
	} {
		if _, err := InProcess("sh", "-c", script)(t.Context(), "GPU-1"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", script, err, want)
		}
	}
}

// TestOutputStaysOpen checks a computing process that succeeds while another process has its output open, as on a busy machine a process that is being started.
func TestOutputStaysOpen(t *testing.T) {
	t.Parallel()
	if failure, err := InProcess("sh", "-c", "sleep 2 &")(t.Context(), "GPU-1"); failure != nil || err != nil {
		t.Errorf("failure %v, error %v", failure, err)
	}
}

// Devices that fail at the same time are read at the same time, and a process has one open NVML library.
func TestModesAreReadConcurrently(t *testing.T) {
	var out strings.Builder
	_, c := machine(t, "h100x8", &out)
	t.Setenv("VALIDATE_LIBCUDA", "libabsent.so.1")
	for range 100 {
		if err := Run(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "8 of 8 devices failed: ") {
			t.Fatalf("error %v", err)
		}
	}
}
