package fakegpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// seen is NVML's view in a container, and the devices that CUDA finds, or its error.
type seen struct {
	Init nvml.Return
	GPUs []string
	MIGs []string
	CUDA string
}

// CUDA's results without any device, and without nvidia-uvm.
const (
	noDevice     = "cuInit: error 100"
	cudaTrouble  = "cuInit: error 999"
	cudaVariable = "FAKEGPU_TEST_CUDA"
)

// TestContainerView mounts the driver read-only, as container runtimes do, gives the container some
// device nodes, and compares NVML's view with the given nodes.
func TestContainerView(t *testing.T) {
	first, second := catalog.UUID("node1", 0), catalog.UUID("node1", 1)
	control, uvm := node{"nvidiactl", majorGPU, 255, 0o666}, node{"nvidia-uvm", majorUVM, 0, 0o666}
	gpu0, gpu1 := node{"nvidia0", majorGPU, 0, 0o666}, node{"nvidia1", majorGPU, 1, 0o666}
	// GPU 1 has a 3g at 4 with id 2 and, in it, compute instances 0 and 1.
	gi, ci0, ci1 := capability(capabilityMinor(1, 2)), capability(capabilityMinor(1, 2)+1), capability(capabilityMinor(1, 2)+2)
	wrong := node{"nvidia1", majorGPU, 9, 0o666}
	const h100 = "NVIDIA H100 80GB HBM3 "
	tests := map[string]struct {
		given []node
		nodev bool
		want  seen
	}{
		"nothing":              {want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED, CUDA: noDevice}},
		"no control node":      {given: []node{uvm, gpu0, gpu1}, want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED, CUDA: noDevice}},
		"no memory node":       {given: []node{control, gpu0}, want: seen{GPUs: []string{first}, CUDA: cudaTrouble}},
		"no GPU":               {given: []node{control, uvm}, want: seen{CUDA: noDevice}},
		"one GPU":              {given: []node{control, uvm, gpu0}, want: seen{GPUs: []string{first}, CUDA: h100 + short(first)}},
		"the GPU with MIG":     {given: []node{control, uvm, gpu1}, want: seen{GPUs: []string{second}, CUDA: noDevice}},
		"both GPUs":            {given: []node{control, uvm, gpu0, gpu1}, want: seen{GPUs: []string{first, second}, CUDA: h100 + short(first)}},
		"another minor number": {given: []node{control, uvm, wrong}, want: seen{CUDA: noDevice}},
		"a MIG device": {given: []node{control, uvm, gpu1, gi, ci1},
			want: seen{GPUs: []string{second}, MIGs: []string{"gi2/ci1"}, CUDA: h100 + "MIG 1c.3g.40gb"}},
		"two MIG devices": {given: []node{control, uvm, gpu1, gi, ci0, ci1},
			want: seen{GPUs: []string{second}, MIGs: []string{"gi2/ci0", "gi2/ci1"}, CUDA: h100 + "MIG 1c.3g.40gb"}},
		"a GPU and a MIG device": {given: []node{control, uvm, gpu0, gpu1, gi, ci0},
			want: seen{GPUs: []string{first, second}, MIGs: []string{"gi2/ci0"}, CUDA: h100 + "MIG 1c.3g.40gb"}},
		"no instance node":    {given: []node{control, uvm, gpu1, ci0}, want: seen{GPUs: []string{second}, CUDA: noDevice}},
		"no compute node":     {given: []node{control, uvm, gpu1, gi}, want: seen{GPUs: []string{second}, CUDA: noDevice}},
		"nodes that are shut": {given: []node{control, uvm, gpu0}, nodev: true, want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED, CUDA: noDevice}},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			dir, client := inClient()
			if !client {
				dir = installAll(t, Spec{Machine: "h100x2"})
				runClient(t, dir, roleVariable+"=partition")
				dev := t.TempDir()
				for _, n := range test.given {
					must(t, n.make(dev))
				}
				runContainer(t, dir, "FAKE_NVML_DEV="+dev, cudaVariable+"="+cudaClient(t))
				return
			}
			if os.Getenv(roleVariable) == "partition" {
				partition(t, start(t, dir))
				return
			}
			must(t, readOnly(DriverRoot(dir), unix.MS_RDONLY))
			if test.nodev {
				must(t, readOnly(os.Getenv("FAKE_NVML_DEV"), unix.MS_NODEV))
			}
			got := look(t, dir)
			lines := cuda(t, os.Getenv(cudaVariable), dir, os.Environ())
			if got.CUDA = lines[0]; len(got.MIGs) > 0 {
				got.CUDA = got.CUDA[:strings.LastIndex(got.CUDA, " ")] // the UUID is another each time
			}
			if len(lines) != 1 {
				t.Errorf("CUDA shows %v, never more than one here", lines)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
			if got.Init == nvml.SUCCESS && len(got.GPUs) == 0 {
				if output, status := smi(t, dir, "-L"); output != "No devices found.\n" || status != 6 {
					t.Errorf("nvidia-smi -L: got %q and status %d, want that no devices were found and status 6", output, status)
				}
			}
		})
	}
}

func capability(minor int) node {
	return node{"nvidia-caps/" + capabilityName(minor), majorCaps, uint32(minor), 0o444}
}

// partition creates the instances that the containers may receive.
func partition(t *testing.T, lib nvml.Interface) {
	d := gpuAt(t, lib, 1)
	enable(t, d)
	gi := create(t, d, 9, 4, 4)
	createCompute(t, gi, 0)
	createCompute(t, gi, 0)
	createCompute(t, create(t, d, 19, 0, 1), 0)
}

// readOnly mounts a folder on itself with flags, in the mount namespace of this process.
func readOnly(folder string, flags uintptr) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(folder, folder, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

func look(t *testing.T, dir string) seen {
	lib := nvml.New(nvml.WithLibraryPath(Library(dir)))
	s := seen{Init: lib.Init()}
	if s.Init != nvml.SUCCESS {
		return s
	}
	count, ret := lib.DeviceGetCount()
	succeed(t, "DeviceGetCount", ret)
	for i := range count {
		d := gpuAt(t, lib, i)
		uuid, ret := d.GetUUID()
		succeed(t, "GetUUID", ret)
		s.GPUs = append(s.GPUs, uuid)
		if index, ret := d.GetIndex(); ret != nvml.SUCCESS || index != i {
			t.Errorf("index %d, %v, want %d", index, name(ret), i)
		}
		s.MIGs = append(s.MIGs, migs(t, lib, d)...)
		checkPowerless(t, d)
	}
	if _, ret := lib.DeviceGetHandleByIndex(count); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("a GPU past the last: %v", name(ret))
	}
	return s
}

func migs(t *testing.T, lib nvml.Interface, d nvml.Device) []string {
	var list []string
	for i := 0; ; i++ {
		device, ret := d.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return list
		}
		gi, ret := device.GetGpuInstanceId()
		succeed(t, "GetGpuInstanceId", ret)
		ci, ret := device.GetComputeInstanceId()
		succeed(t, "GetComputeInstanceId", ret)
		list = append(list, filepath.Join("gi"+string(rune('0'+gi)), "ci"+string(rune('0'+ci))))
		uuid, ret := device.GetUUID()
		succeed(t, "GetUUID", ret)
		if again, ret := lib.DeviceGetHandleByUUID(uuid); ret != nvml.SUCCESS || again != device {
			t.Errorf("by UUID: %v", name(ret))
		}
		if index, ret := device.GetIndex(); ret != nvml.SUCCESS || index != i {
			t.Errorf("index %d, %v, want %d", index, name(ret), i)
		}
	}
}

// checkPowerless: a container changes nothing and lists no instances.
func checkPowerless(t *testing.T, d nvml.Device) {
	_, ret := tryCreate(d, 19, 0, 1)
	expect(t, "create in a container", ret, nvml.ERROR_NO_PERMISSION)
	_, ret = d.GetGpuInstanceById(2)
	expect(t, "GetGpuInstanceById in a container", ret, nvml.ERROR_NO_PERMISSION)
	_, ret = d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	expect(t, "SetMigMode in a container", ret, nvml.ERROR_NO_PERMISSION)
}
