package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ones is the UUID of the device of testdata/broken.c.
const ones = "GPU-01010101-0101-0101-0101-010101010101"

// TestMain runs as the computing process if the test starts it again: a process computes once.
func TestMain(m *testing.M) {
	if library := os.Getenv("COMPUTE_LIBRARY"); library != "" {
		if failure := Compute(library, os.Getenv("COMPUTE_UUID")); failure != nil {
			os.Stdout.WriteString(failure.Error())
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func compute(t *testing.T, library, uuid, defect string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), "COMPUTE_LIBRARY="+library, "COMPUTE_UUID="+uuid, "DEFECT="+defect)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A device that returns wrong data, or fails in a call, is reported with the step and what differs.
func TestComputeFindsEveryDefect(t *testing.T) {
	library := filepath.Join(t.TempDir(), Library)
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", library, "testdata/broken.c").CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	for name, test := range map[string]struct{ library, uuid, defect, want string }{
		"none":                  {library, ones, "", ""},
		"a bit of a copy":       {library, ones, "copy", "compare the copied memory: word 7 of 262144 is 0x6c253776 instead of 0x6c25377e"},
		"the last thread":       {library, ones, "kernel", "compare the kernel's result: word 262143 of 262144 is 0x00000000 instead of 0x"},
		"two devices":           {library, ones, "devices", "cuDeviceGetCount: CUDA lists 2 devices instead of one"},
		"another device":        {library, ones, "other", "cuDeviceGetUuid: CUDA lists another device"},
		"an error":              {library, ones, "214", "cuCtxSynchronize: CUDA_ERROR_ECC_UNCORRECTABLE (214)"},
		"no library":            {library + ".2", ones, "", "dlopen: " + library + ".2: cannot open shared object file: No such file or directory"},
		"a name without digits": {library, "GPU-1", "", `parse the UUID: "GPU-1" is not the UUID of a GPU or MIG device`},
	} {
		t.Run(name, func(t *testing.T) {
			got := compute(t, test.library, test.uuid, test.defect)
			if name == "the last thread" { // the expected word is a detail of the input
				got = got[:min(len(got), len(test.want))]
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
