package fakegpu

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// TestMachines reads every machine of the catalogue through go-nvml and compares each GPU with the
// catalogue.
func TestMachines(t *testing.T) {
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			withNVML(t, Spec{Machine: m.Name}, func(t *testing.T, _ string, lib nvml.Interface) {
				want := gputest.Node(t, m.Name)
				count, ret := lib.DeviceGetCount()
				succeed(t, "DeviceGetCount", ret)
				if count != len(want.GPUs) {
					t.Fatalf("%d GPUs, want %d", count, len(want.GPUs))
				}
				for i, g := range want.GPUs {
					if diff := cmp.Diff(identity(g), identityOf(t, gpuAt(t, lib, i))); diff != "" {
						t.Errorf("GPU %d (-want +got):\n%s", i, diff)
					}
					compareGeometry(t, gpuAt(t, lib, i), m.GPUs[i].Model)
					for j := range want.GPUs {
						if i != j {
							compareLink(t, lib, m, i, j)
						}
					}
				}
			})
		})
	}
}

// gpuIdentity is the identity of a GPU as NVML reports it.
type gpuIdentity struct {
	PCI, UUID, Product, Clique string
	Index, Minor               int
	Major, MinorCapability     int
	Memory                     uint64
	NUMA                       int
	MIG                        gpu.Mode
}

func identity(g gpu.GPU) gpuIdentity {
	return gpuIdentity{
		PCI: g.PCI, UUID: g.UUID, Product: g.Product, Clique: g.Clique, Index: g.Index, Minor: g.Minor,
		Major: g.ComputeMajor, MinorCapability: g.ComputeMinor, Memory: g.MemoryBytes, NUMA: g.NUMA, MIG: g.Mode,
	}
}

func identityOf(t *testing.T, d nvml.Device) gpuIdentity {
	t.Helper()
	var id gpuIdentity
	var ret nvml.Return
	id.UUID, ret = d.GetUUID()
	succeed(t, "GetUUID", ret)
	id.Product, ret = d.GetName()
	succeed(t, "GetName", ret)
	id.Index, ret = d.GetIndex()
	succeed(t, "GetIndex", ret)
	id.Minor, ret = d.GetMinorNumber()
	succeed(t, "GetMinorNumber", ret)
	id.Major, id.MinorCapability, ret = d.GetCudaComputeCapability()
	succeed(t, "GetCudaComputeCapability", ret)
	memory, ret := d.GetMemoryInfo_v2()
	succeed(t, "GetMemoryInfo_v2", ret)
	id.Memory = memory.Total
	pci, ret := d.GetPciInfo()
	succeed(t, "GetPciInfo", ret)
	id.PCI = fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
	if nodes, ret := d.GetMemoryAffinity(1, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
		id.NUMA = bits.TrailingZeros(nodes[0])
	} else {
		expect(t, "GetMemoryAffinity", ret, nvml.ERROR_NOT_SUPPORTED)
		id.NUMA = -1
	}
	id.MIG = migMode(t, d)
	if fabric, ret := d.GetGpuFabricInfoV().V3(); ret == nvml.SUCCESS && fabric.ClusterUuid != [16]uint8{} {
		u := fabric.ClusterUuid
		id.Clique = fmt.Sprintf("%x-%x-%x-%x-%x.%d", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16], fabric.CliqueId)
	}
	return id
}

func migMode(t *testing.T, d nvml.Device) gpu.Mode {
	t.Helper()
	current, pending, ret := d.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return gpu.ModeUnsupported
	}
	succeed(t, "GetMigMode", ret)
	if current != pending {
		t.Errorf("MIG mode %d, pending %d", current, pending)
	}
	return map[int]gpu.Mode{nvml.DEVICE_MIG_DISABLE: gpu.ModeDisabled, nvml.DEVICE_MIG_ENABLE: gpu.ModeEnabled}[current]
}

// compareGeometry queries every profile constant, whether or not MIG is on.
func compareGeometry(t *testing.T, d nvml.Device, model string) {
	t.Helper()
	m, err := catalog.FindModel(model)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]catalog.Profile{}
	for _, p := range m.Profiles {
		p.Compute, p.Graphics = nil, false
		want[p.Enum] = p
	}
	got := map[int]catalog.Profile{}
	for constant := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.GetGpuInstanceProfileInfoV(constant).V2()
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		succeed(t, "GetGpuInstanceProfileInfoV", ret)
		plain, ret := d.GetGpuInstanceProfileInfo(constant)
		succeed(t, "GetGpuInstanceProfileInfo", ret)
		if plain.Id != info.Id || plain.MemorySizeMB != info.MemorySizeMB {
			t.Errorf("profile %d: %+v, and in version 2 %+v", constant, plain, info)
		}
		placements, ret := d.GetGpuInstancePossiblePlacements(&plain)
		succeed(t, "GetGpuInstancePossiblePlacements", ret)
		p := catalog.Profile{
			Enum: constant, ID: int(info.Id), Name: strings.TrimPrefix(cString(info.Name[:]), "MIG "),
			ComputeSlices: int(info.SliceCount), Size: int(placements[0].Size), MaxInstances: int(info.InstanceCount),
			Multiprocessors: int(info.MultiprocessorCount), MemoryMiB: info.MemorySizeMB,
			Engines: gpu.Engines{OFA: int(info.OfaCount), JPEG: int(info.JpegCount), Decoder: int(info.DecoderCount),
				Encoder: int(info.EncoderCount), Copy: int(info.CopyEngineCount)},
		}
		for _, place := range placements {
			p.Starts = append(p.Starts, int(place.Start))
		}
		got[constant] = p
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: profiles (-want +got):\n%s", model, diff)
	}
	if _, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_COUNT); ret != nvml.ERROR_INVALID_ARGUMENT {
		t.Errorf("profile past the last: %v", name(ret))
	}
}

// compareLink counts the NVLinks between two GPUs and queries their PCIe topology level.
func compareLink(t *testing.T, lib nvml.Interface, m catalog.Machine, i, j int) {
	t.Helper()
	from, to := gpuAt(t, lib, i), gpuAt(t, lib, j)
	peer, ret := to.GetPciInfo()
	succeed(t, "GetPciInfo", ret)
	links := 0
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := from.GetNvLinkState(link)
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		kind, ret := from.GetNvLinkRemoteDeviceType(link)
		succeed(t, "GetNvLinkRemoteDeviceType", ret)
		remote, ret := from.GetNvLinkRemotePciInfo(link)
		succeed(t, "GetNvLinkRemotePciInfo", ret)
		if kind == nvml.NVLINK_DEVICE_TYPE_SWITCH || remote.BusId == peer.BusId {
			links++
		}
	}
	if want := m.NVLinkCount(i, j); links != want {
		t.Errorf("%d NVLinks from GPU %d to %d, want %d", links, i, j, want)
	}
	level, ret := from.GetTopologyCommonAncestor(to)
	succeed(t, "GetTopologyCommonAncestor", ret)
	want := map[gpu.Link]nvml.GpuTopologyLevel{
		gpu.LinkSwitch: nvml.TOPOLOGY_SINGLE, gpu.LinkHostBridge: nvml.TOPOLOGY_HOSTBRIDGE,
		gpu.LinkNode: nvml.TOPOLOGY_NODE, gpu.LinkSystem: nvml.TOPOLOGY_SYSTEM,
	}[m.PCIeLink(i, j)]
	if level != want {
		t.Errorf("GPU %d to %d: topology level %d, want %d", i, j, level, want)
	}
}

func cString(text []int8) string {
	var b []byte
	for _, c := range text {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func TestHandles(t *testing.T) {
	withNVML(t, Spec{Machine: "h100x2", Node: "a"}, func(t *testing.T, _ string, lib nvml.Interface) {
		uuid := catalog.UUID("a", 1)
		byUUID, ret := lib.DeviceGetHandleByUUID(uuid)
		succeed(t, "DeviceGetHandleByUUID", ret)
		byBus, ret := lib.DeviceGetHandleByPciBusId("00000000:43:00.0")
		succeed(t, "DeviceGetHandleByPciBusId", ret)
		for how, device := range map[string]nvml.Device{"UUID": byUUID, "bus id": byBus} {
			if device != gpuAt(t, lib, 1) {
				t.Errorf("by %s: another handle than by index", how)
			}
		}
		_, ret = lib.DeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
		expect(t, "unknown UUID", ret, nvml.ERROR_NOT_FOUND)
		_, ret = lib.DeviceGetHandleByPciBusId("00000000:44:00.0")
		expect(t, "unknown bus id", ret, nvml.ERROR_NOT_FOUND)
		_, ret = lib.DeviceGetHandleByIndex(2)
		expect(t, "index past the last", ret, nvml.ERROR_INVALID_ARGUMENT)
		isMIG, ret := byUUID.IsMigDeviceHandle()
		succeed(t, "IsMigDeviceHandle", ret)
		if isMIG {
			t.Error("a GPU is reported as a MIG device")
		}
		_, ret = byUUID.GetFanSpeed()
		expect(t, "a function that the fake lacks", ret, nvml.ERROR_NOT_SUPPORTED)
	})
}

func TestUninitialized(t *testing.T) {
	withNVML(t, Spec{Machine: "t4x1"}, func(t *testing.T, _ string, lib nvml.Interface) {
		succeed(t, "Init again", lib.Init())
		succeed(t, "Shutdown", lib.Shutdown())
		_, ret := lib.DeviceGetCount()
		succeed(t, "DeviceGetCount with a session left", ret)
		version, ret := lib.SystemGetDriverVersion()
		succeed(t, "SystemGetDriverVersion", ret)
		cuda, ret := lib.SystemGetCudaDriverVersion()
		succeed(t, "SystemGetCudaDriverVersion", ret)
		if version != catalog.DriverVersion || cuda != 13000 {
			t.Errorf("driver %s, CUDA %d", version, cuda)
		}
	})
}
