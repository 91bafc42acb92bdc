package fakegpu

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// cudaClient compiles the CUDA program of the tests.
func cudaClient(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cuda_client")
	output, err := exec.CommandContext(t.Context(), "gcc", "-o", path, "testdata/cuda_client.c", "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, output)
	}
	return path
}

func cudaLibrary(dir string) string {
	return filepath.Join(DriverRoot(dir), libraryFolder, "libcuda.so.1")
}

// cuda runs the program and returns the lines that it printed.
func cuda(t *testing.T, client, dir string, env []string, verbs ...string) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), client, append([]string{cudaLibrary(dir)}, verbs...)...)
	command.Env = env
	output, err := command.Output()
	if err != nil && len(output) == 0 {
		t.Fatalf("CUDA program: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

// short is the beginning of a UUID as the CUDA program prints it.
func short(uuid string) string { return strings.Split(uuid, "-")[1] }

func TestCUDA(t *testing.T) {
	client := cudaClient(t)
	dir := install(t, Spec{Machine: "h100x2"})
	first, second := short(catalog.UUID("node1", 0)), short(catalog.UUID("node1", 1))
	const product = "NVIDIA H100 80GB HBM3 "
	tests := map[string]struct {
		verbs, env, want []string
	}{
		"all GPUs":         {want: []string{product + first, product + second}},
		"chosen by index":  {env: []string{"CUDA_VISIBLE_DEVICES=1"}, want: []string{product + second}},
		"chosen by UUID":   {env: []string{"CUDA_VISIBLE_DEVICES=" + catalog.UUID("node1", 1)}, want: []string{product + second}},
		"chosen by prefix": {env: []string{"CUDA_VISIBLE_DEVICES=GPU-" + second[:4] + ",0"}, want: []string{product + second, product + first}},
		"up to nonsense":   {env: []string{"CUDA_VISIBLE_DEVICES=0,7,1"}, want: []string{product + first}},
		"chosen none":      {env: []string{"CUDA_VISIBLE_DEVICES="}, want: []string{"cuInit: error 100"}},
		"a kernel":         {verbs: []string{"add", "add"}, want: []string{product + first, product + second, "added", "added"}},
		"too much memory":  {verbs: []string{"fill"}, want: []string{product + first, product + second, "cuMemAlloc_v2: error 2"}},
	}
	// What the driver refuses, by the names of cuda.h.
	for verb, want := range map[string]string{
		"copy":                "cuMemcpyHtoD_v2: error 201",  // CUDA_ERROR_INVALID_CONTEXT
		"unknown-instruction": "cuModuleLoadData: error 218", // CUDA_ERROR_INVALID_PTX
		"undeclared-register": "cuModuleLoadData: error 218",
		"wrong-type":          "cuModuleLoadData: error 218",
		"no-version":          "cuModuleLoadData: error 218",
		"newer-version":       "cuModuleLoadData: error 222",    // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
		"newer-target":        "cuModuleLoadData: error 209",    // CUDA_ERROR_NO_BINARY_FOR_GPU
		"no-function":         "cuModuleGetFunction: error 500", // CUDA_ERROR_NOT_FOUND
		"outside":             "cuCtxSynchronize: error 700",    // CUDA_ERROR_ILLEGAL_ADDRESS, after the launch
	} {
		tests["refuses "+verb] = struct{ verbs, env, want []string }{verbs: []string{verb}, want: []string{product + first, product + second, want}}
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, cuda(t, client, dir, test.env, test.verbs...)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCUDAHolds: a GPU or instance with a context on it is in use until the process ends, however
// it ends.
func TestCUDAHolds(t *testing.T) {
	if dir, client := inClient(); client {
		lib := start(t, dir)
		d := gpuAt(t, lib, 0)
		program := cudaClient(t)

		enableTo(t, d, hold(t, program, dir), nvml.ERROR_IN_USE)
		enableTo(t, d, nil, nvml.SUCCESS)
		gi := create(t, d, 19, 2, 1)
		ci := createCompute(t, gi, 0)
		uuid, ret := migDevice(t, ci).GetUUID()
		succeed(t, "GetUUID", ret)
		other := createCompute(t, create(t, d, 19, 3, 1), 0)
		lines := cuda(t, program, dir, []string{"CUDA_VISIBLE_DEVICES=" + uuid})
		if diff := cmp.Diff([]string{"NVIDIA H100 80GB HBM3 MIG 1g.10gb " + short(uuid)}, lines); diff != "" {
			t.Errorf("devices (-want +got):\n%s", diff)
		}
		second := catalog.UUID("node1", 1)
		lines = cuda(t, program, dir, []string{"CUDA_VISIBLE_DEVICES=" + second})
		if diff := cmp.Diff([]string{"NVIDIA H100 80GB HBM3 " + short(second)}, lines); diff != "" {
			t.Errorf("a GPU together with the MIG device (-want +got):\n%s", diff)
		}
		release := hold(t, program, dir, "CUDA_VISIBLE_DEVICES="+uuid)
		expect(t, "destroy a compute instance in use", ci.Destroy(), nvml.ERROR_IN_USE)
		succeed(t, "destroy its neighbour", other.Destroy())
		release()
		succeed(t, "destroy", ci.Destroy())
		succeed(t, "destroy", gi.Destroy())
		return
	}
	runClient(t, install(t, Spec{Machine: "h100x2"}))
}

// enableTo requests MIG while a program runs, and ends the program.
func enableTo(t *testing.T, d nvml.Device, release func(), want nvml.Return) {
	t.Helper()
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	succeed(t, "SetMigMode", ret)
	expect(t, "activation", activation, want)
	if release != nil {
		release()
	}
}

// hold starts a CUDA program that has a context, and returns a function that kills it.
func hold(t *testing.T, program, dir string, env ...string) (release func()) {
	t.Helper()
	_, release = keep(t, program, dir, env, "hold", func(line string) bool { return line == "holding" })
	return release
}

// keep starts the CUDA program with a verb that ends with its input, and returns the first line that is ready. release kills the program.
func keep(t *testing.T, program, dir string, env []string, verb string, ready func(line string) bool) (line string, release func()) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, cudaLibrary(dir), verb)
	command.Env = env
	stdin, err := command.StdinPipe()
	must(t, err)
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !ready(lines.Text()) {
		if strings.Contains(lines.Text(), "error") {
			t.Fatal(fmt.Errorf("CUDA program: %s", lines.Text()))
		}
	}
	return lines.Text(), func() {
		must(t, command.Process.Kill())
		io.Copy(io.Discard, out)
		if command.Wait() == nil {
			t.Error("the CUDA program ended by itself")
		}
		stdin.Close()
	}
}
