package fakegpu

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// enable turns MIG on, on a GPU that supports it without a reset.
func enable(t *testing.T, d nvml.Device) {
	t.Helper()
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	succeed(t, "SetMigMode", ret)
	succeed(t, "activation", activation)
}

// create creates a GPU instance at a start, of the size that the placement must have.
func create(t *testing.T, d nvml.Device, profile, start, size int) nvml.GpuInstance {
	t.Helper()
	gi, ret := tryCreate(d, profile, start, size)
	succeed(t, fmt.Sprintf("create profile %d at %d", profile, start), ret)
	return gi
}

func tryCreate(d nvml.Device, profile, start, size int) (nvml.GpuInstance, nvml.Return) {
	info := nvml.GpuInstanceProfileInfo{Id: uint32(profile)}
	return d.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(start), Size: uint32(size)})
}

func createCompute(t *testing.T, gi nvml.GpuInstance, profile int) nvml.ComputeInstance {
	t.Helper()
	ci, ret := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: uint32(profile)})
	succeed(t, fmt.Sprintf("create compute instance %d", profile), ret)
	return ci
}

func migDevice(t *testing.T, ci nvml.ComputeInstance) nvml.Device {
	t.Helper()
	info, ret := ci.GetInfo()
	succeed(t, "ComputeInstance.GetInfo", ret)
	return info.Device
}

func TestMIGDevice(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 1)
		enable(t, d)
		gi := create(t, d, 9, 4, 4)
		device := migDevice(t, createCompute(t, gi, 2))
		uuid, ret := device.GetUUID()
		succeed(t, "GetUUID", ret)
		if !regexp.MustCompile(`^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(uuid) {
			t.Errorf("UUID %s", uuid)
		}
		product, ret := device.GetName()
		succeed(t, "GetName", ret)
		attributes, ret := device.GetAttributes()
		succeed(t, "GetAttributes", ret)
		memory, ret := device.GetMemoryInfo()
		succeed(t, "GetMemoryInfo", ret)
		gotGI, ret := device.GetGpuInstanceId()
		succeed(t, "GetGpuInstanceId", ret)
		gotCI, ret := device.GetComputeInstanceId()
		succeed(t, "GetComputeInstanceId", ret)
		got := fmt.Sprintf("%s gi%d ci%d %d MiB", product, gotGI, gotCI, memory.Total>>20)
		if want := "NVIDIA H100 80GB HBM3 MIG 3g.40gb gi2 ci0 40448 MiB"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		wantAttributes := nvml.DeviceAttributes{MultiprocessorCount: 60, SharedCopyEngineCount: 3, SharedDecoderCount: 3,
			SharedJpegCount: 3, GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 40448}
		if diff := cmp.Diff(wantAttributes, attributes); diff != "" {
			t.Errorf("attributes (-want +got):\n%s", diff)
		}
		parent, ret := device.GetDeviceHandleFromMigDeviceHandle()
		succeed(t, "GetDeviceHandleFromMigDeviceHandle", ret)
		byIndex, ret := d.GetMigDeviceHandleByIndex(0)
		succeed(t, "GetMigDeviceHandleByIndex", ret)
		byUUID, ret := lib.DeviceGetHandleByUUID(uuid)
		succeed(t, "DeviceGetHandleByUUID", ret)
		legacy, ret := lib.DeviceGetHandleByUUID("MIG-" + catalog.UUID("node1", 1) + "/2/0")
		succeed(t, "legacy UUID", ret)
		if parent != d || byIndex != device || byUUID != device || legacy != device {
			t.Error("handles differ with the way that leads to them")
		}
		_, ret = d.GetMigDeviceHandleByIndex(1)
		expect(t, "second MIG device", ret, nvml.ERROR_NOT_FOUND)
		_, ret = d.GetMigDeviceHandleByIndex(7)
		expect(t, "MIG device past the last", ret, nvml.ERROR_INVALID_ARGUMENT)
		_, ret = d.GetAttributes()
		expect(t, "attributes of a GPU", ret, nvml.ERROR_NOT_SUPPORTED)
		_, ret = device.GetMinorNumber()
		expect(t, "minor number of a MIG device", ret, nvml.ERROR_NOT_SUPPORTED)

		state, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		want := []Instance{{ID: 2, Profile: 9, Name: "3g.40gb", Start: 4, Size: 4, Computes: []Compute{{ID: 0, Profile: 2, Start: 0, Size: 3, UUID: uuid}}}}
		if diff := cmp.Diff(want, state.GPUs[1].Instances); diff != "" {
			t.Errorf("Read (-want +got):\n%s", diff)
		}
	})
}

// TestDestroy: an instance that contains others cannot be destroyed; handles of destroyed ones are
// refused; a new instance at the same place has the same UUID.
func TestDestroy(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, _ string, lib nvml.Interface) {
		d := gpuAt(t, lib, 0)
		enable(t, d)
		gi := create(t, d, 19, 3, 1)
		ci := createCompute(t, gi, 0)
		device := migDevice(t, ci)
		first, ret := device.GetUUID()
		succeed(t, "GetUUID", ret)
		expect(t, "destroy a GPU instance in use", gi.Destroy(), nvml.ERROR_IN_USE)
		activation, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
		expect(t, "disable MIG in use", ret, nvml.ERROR_IN_USE)
		expect(t, "activation", activation, nvml.ERROR_IN_USE)
		succeed(t, "destroy the compute instance", ci.Destroy())
		expect(t, "destroy it twice", ci.Destroy(), nvml.ERROR_INVALID_ARGUMENT)
		_, ret = device.GetUUID()
		expect(t, "query the MIG device", ret, nvml.ERROR_INVALID_ARGUMENT)
		second, ret := migDevice(t, createCompute(t, gi, 0)).GetUUID()
		succeed(t, "GetUUID", ret)
		if first != second {
			t.Errorf("the next MIG device at the place has UUID %s, the last one had %s", second, first)
		}
		ci, ret = gi.GetComputeInstanceById(0)
		succeed(t, "GetComputeInstanceById", ret)
		succeed(t, "destroy the compute instance", ci.Destroy())
		succeed(t, "destroy the GPU instance", gi.Destroy())
		_, ret = gi.GetInfo()
		expect(t, "query the GPU instance", ret, nvml.ERROR_INVALID_ARGUMENT)
		activation, ret = d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
		succeed(t, "disable MIG", ret)
		succeed(t, "activation", activation)
	})
}

// TestInstanceIDs checks the ids that published dumps show.
func TestInstanceIDs(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2"}, func(t *testing.T, _ string, lib nvml.Interface) {
		enable(t, gpuAt(t, lib, 0))
		enable(t, gpuAt(t, lib, 1))
		tests := []struct{ gpu, profile, start, size, id int }{
			{0, 19, 6, 1, 13}, {0, 19, 0, 1, 7}, {0, 20, 1, 1, 8}, {0, 14, 2, 2, 4}, {0, 15, 4, 2, 5},
			{1, 9, 4, 4, 2}, {1, 5, 0, 4, 1},
		}
		for _, test := range tests {
			info, ret := create(t, gpuAt(t, lib, test.gpu), test.profile, test.start, test.size).GetInfo()
			succeed(t, "GetInfo", ret)
			if int(info.Id) != test.id {
				t.Errorf("profile %d at %d: id %d, want %d", test.profile, test.start, info.Id, test.id)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	withNVML(t, Spec{Machine: "a30x4l40sx4"}, func(t *testing.T, _ string, lib nvml.Interface) {
		on, off, plain := gpuAt(t, lib, 0), gpuAt(t, lib, 2), gpuAt(t, lib, 4)
		create(t, on, 5, 0, 2)
		for what, c := range map[string]struct {
			device               nvml.Device
			profile, start, size int
			want                 nvml.Return
		}{
			"MIG is off":              {off, 5, 0, 2, nvml.ERROR_NOT_SUPPORTED},
			"no MIG":                  {plain, 5, 0, 2, nvml.ERROR_NOT_SUPPORTED},
			"overlap":                 {on, 14, 1, 1, nvml.ERROR_INSUFFICIENT_RESOURCES},
			"overlap with the whole":  {on, 0, 0, 4, nvml.ERROR_INSUFFICIENT_RESOURCES},
			"a profile of another":    {on, 19, 0, 1, nvml.ERROR_INVALID_ARGUMENT},
			"a start that is illegal": {on, 5, 1, 2, nvml.ERROR_INVALID_ARGUMENT},
			"a size that is wrong":    {on, 5, 2, 1, nvml.ERROR_INVALID_ARGUMENT},
		} {
			_, ret := tryCreate(c.device, c.profile, c.start, c.size)
			expect(t, what, ret, c.want)
		}
		create(t, on, 6, 2, 2) // 2g.12gb+me has the only OFA
		none, ret := off.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: 5, InstanceCount: 2})
		if expect(t, "list with MIG off", ret, nvml.SUCCESS); len(none) != 0 {
			t.Errorf("instances with MIG off: %v", none)
		}
		_, ret = off.GetGpuInstanceProfileInfoByIdV(5).V2()
		expect(t, "profile by id with MIG off", ret, nvml.ERROR_NOT_SUPPORTED)
		_, ret = off.GetMigDeviceHandleByIndex(0)
		expect(t, "MIG device with MIG off", ret, nvml.ERROR_NOT_FOUND)
		count, ret := off.GetMaxMigDeviceCount()
		succeed(t, "GetMaxMigDeviceCount", ret)
		if count != 0 {
			t.Errorf("%d MIG devices with MIG off", count)
		}
		_, ret = plain.SetMigMode(nvml.DEVICE_MIG_ENABLE)
		expect(t, "enable MIG without MIG", ret, nvml.ERROR_NOT_SUPPORTED)
	})
}

// TestMediaEngines: the second instance with media extensions is refused although its slices are free.
func TestMediaEngines(t *testing.T) {
	withNVML(t, Spec{Machine: "rtxpro6000x4"}, func(t *testing.T, _ string, lib nvml.Interface) {
		d := gpuAt(t, lib, 0)
		enable(t, d)
		all := create(t, d, 65, 0, 3) // 1g.24gb+me.all
		for _, profile := range []int{14, 21, 47} {
			_, ret := tryCreate(d, profile, 3, 3)
			expect(t, fmt.Sprintf("profile %d with +me.all", profile), ret, nvml.ERROR_INSUFFICIENT_RESOURCES)
		}
		create(t, d, 67, 3, 3) // 1g.24gb-me
		succeed(t, "Destroy", all.Destroy())
		create(t, d, 21, 0, 3) // 1g.24gb+me
		_, ret := tryCreate(d, 21, 6, 3)
		expect(t, "second +me", ret, nvml.ERROR_INSUFFICIENT_RESOURCES)
		create(t, d, 14, 6, 3)
	})
}

// TestAmpereNeedsReset: the mode stays pending until the GPU is reset or the machine rebooted.
func TestAmpereNeedsReset(t *testing.T) {
	withNVML(t, Spec{Machine: "a100x8"}, func(t *testing.T, dir string, lib nvml.Interface) {
		d := gpuAt(t, lib, 3)
		activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
		succeed(t, "SetMigMode", ret)
		expect(t, "activation", activation, nvml.ERROR_RESET_REQUIRED)
		current, pending, ret := d.GetMigMode()
		succeed(t, "GetMigMode", ret)
		if current != 0 || pending != 1 {
			t.Errorf("mode %d, pending %d", current, pending)
		}
		_, ret = tryCreate(d, 19, 0, 1)
		expect(t, "create before the reset", ret, nvml.ERROR_NOT_SUPPORTED)
		if err := Reboot(dir); err != nil {
			t.Fatal(err)
		}
		_, ret = lib.DeviceGetCount()
		expect(t, "the old session", ret, nvml.ERROR_DRIVER_NOT_LOADED)
		succeed(t, "Shutdown", lib.Shutdown())
		succeed(t, "Init", lib.Init())
		create(t, gpuAt(t, lib, 3), 19, 0, 1)
	})
}

// TestComputeProfiles: a GPU instance may have several compute profiles with the same number of
// slices; constants of other instances are not supported by it.
func TestComputeProfiles(t *testing.T) {
	type offer struct{ constant, id, slices, multiprocessors int }
	tests := map[string]struct {
		machine              string
		profile, start, size int
		want                 []offer
	}{
		"A100 7g":  {"a100-40x2", 0, 0, 8, []offer{{0, 0, 1, 14}, {1, 1, 2, 28}, {2, 2, 3, 42}, {3, 3, 4, 56}, {4, 4, 7, 98}}},
		"B300 1gd": {"b300x2", 15, 6, 2, []offer{{0, 0, 1, 18}, {7, 7, 1, 30}}},
		"H100 3g":  {"h100x2", 9, 0, 4, []offer{{0, 0, 1, 16}, {1, 1, 2, 32}, {2, 2, 3, 60}}},
	}
	for what, test := range tests {
		t.Run(strings.ReplaceAll(what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			dir, client := inClient()
			if !client {
				runClient(t, install(t, Spec{Machine: test.machine}))
				return
			}
			lib := start(t, dir)
			if _, ret := gpuAt(t, lib, 0).SetMigMode(nvml.DEVICE_MIG_ENABLE); ret == nvml.SUCCESS {
				succeed(t, "Shutdown", lib.Shutdown())
				if err := Reboot(dir); err != nil {
					t.Fatal(err)
				}
				succeed(t, "Init", lib.Init())
			}
			d := gpuAt(t, lib, 0)
			enable(t, d)
			gi := create(t, d, test.profile, test.start, test.size)
			var got []offer
			for constant := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
				info, ret := gi.GetComputeInstanceProfileInfo(constant, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret == nvml.ERROR_NOT_SUPPORTED {
					continue
				}
				succeed(t, "GetComputeInstanceProfileInfo", ret)
				got = append(got, offer{constant, int(info.Id), int(info.SliceCount), int(info.MultiprocessorCount)})
			}
			if !slices.Equal(test.want, got) {
				t.Errorf("offers %v, want %v", got, test.want)
			}
			last := test.want[len(test.want)-1]
			device := migDevice(t, createCompute(t, gi, last.id))
			attributes, ret := device.GetAttributes()
			succeed(t, "GetAttributes", ret)
			if int(attributes.MultiprocessorCount) != last.multiprocessors {
				t.Errorf("%d SMs, want %d", attributes.MultiprocessorCount, last.multiprocessors)
			}
			_, ret = gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 0})
			expect(t, "second compute instance", ret, nvml.ERROR_INSUFFICIENT_RESOURCES)
			_, ret = gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 8})
			expect(t, "compute profile 8", ret, nvml.ERROR_NOT_SUPPORTED)
		})
	}
}

// TestMIGModeWithAnotherClient: the mode of a GPU that a program in a container has opened through NVML stays as it is ("activation fails when the GPU is in
// use by another client", nvml.h on nvmlDeviceSetMigMode).
func TestMIGModeWithAnotherClient(t *testing.T) {
	dir, client := inClient()
	if !client {
		dir = installAll(t, Spec{Machine: "h100x2"})
		must(t, MakeNodes(dir))
		runClient(t, dir)
		return
	}
	exports := os.Getenv(roleVariable) == "exporter"
	if exports {
		must(t, readOnly(DriverRoot(dir), unix.MS_RDONLY)) // as in a container
	}
	lib := start(t, dir)
	if exports {
		fmt.Println("open")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the other process closes it
		return
	}
	exporter := clientCommand(t, dir, roleVariable+"=exporter", "FAKE_NVML_DEV="+filepath.Join(DevRoot(dir), "dev"))
	exporter.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	stdin, err := exporter.StdinPipe()
	must(t, err)
	stdout, err := exporter.StdoutPipe()
	must(t, err)
	must(t, exporter.Start())
	for lines := bufio.NewScanner(stdout); lines.Text() != "open"; {
		if !lines.Scan() {
			t.Fatalf("the other client ended: %v", lines.Err())
		}
	}
	d := gpuAt(t, lib, 0)
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	if current, _, _ := d.GetMigMode(); ret != nvml.SUCCESS || activation != nvml.ERROR_IN_USE || current != nvml.DEVICE_MIG_DISABLE {
		t.Errorf("with another client: %v, activation %v, mode %d", name(ret), name(activation), current)
	}
	must(t, stdin.Close())
	must(t, exporter.Wait())
	enable(t, d)
}
