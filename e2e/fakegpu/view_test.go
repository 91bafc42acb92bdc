package fakegpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// seen is what NVML shows in a container.
type seen struct {
	Init nvml.Return
	GPUs []string
	MIGs []string
}

// TestContainerView mounts the driver read-only, as container runtimes do, gives the container some
// device nodes, and compares what NVML shows with what was given.
func TestContainerView(t *testing.T) {
	first, second := gputest.UUID("node1", 0), gputest.UUID("node1", 1)
	control := node{"nvidiactl", majorGPU, 255, 0o666}
	gpu0, gpu1 := node{"nvidia0", majorGPU, 0, 0o666}, node{"nvidia1", majorGPU, 1, 0o666}
	// GPU 1 has a 3g at 4 with id 2 and, in it, compute instances 0 and 1.
	gi, ci0, ci1 := capability(capabilityMinor(1, 2)), capability(capabilityMinor(1, 2)+1), capability(capabilityMinor(1, 2)+2)
	wrong := node{"nvidia1", majorGPU, 9, 0o666}
	tests := map[string]struct {
		given []node
		nodev bool
		want  seen
	}{
		"nothing":              {want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED}},
		"no control node":      {given: []node{gpu0, gpu1}, want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED}},
		"no GPU":               {given: []node{control}},
		"one GPU":              {given: []node{control, gpu0}, want: seen{GPUs: []string{first}}},
		"the other GPU":        {given: []node{control, gpu1}, want: seen{GPUs: []string{second}}},
		"both GPUs":            {given: []node{control, gpu0, gpu1}, want: seen{GPUs: []string{first, second}}},
		"another minor number": {given: []node{control, wrong}},
		"a MIG device":         {given: []node{control, gpu1, gi, ci1}, want: seen{GPUs: []string{second}, MIGs: []string{"gi2/ci1"}}},
		"two MIG devices":      {given: []node{control, gpu1, gi, ci0, ci1}, want: seen{GPUs: []string{second}, MIGs: []string{"gi2/ci0", "gi2/ci1"}}},
		"no instance node":     {given: []node{control, gpu1, ci0}, want: seen{GPUs: []string{second}}},
		"no compute node":      {given: []node{control, gpu1, gi}, want: seen{GPUs: []string{second}}},
		"nodes that are shut":  {given: []node{control, gpu0}, nodev: true, want: seen{Init: nvml.ERROR_DRIVER_NOT_LOADED}},
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
				runContainer(t, dir, "FAKE_NVML_DEV="+dev)
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
			if diff := cmp.Diff(test.want, look(t, dir)); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
		})
	}
}

func capability(minor int) node {
	return node{"nvidia-caps/" + capabilityName(minor), majorCaps, uint32(minor), 0o444}
}

// partition makes the instances that the containers may be given.
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
