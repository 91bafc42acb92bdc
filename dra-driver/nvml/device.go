package nvml

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// device is one GPU of a connection. info is nil until the GPU has responded.
type device struct {
	index int
	info  atomic.Pointer[gpuInfo]
	// logged is what could not be read when that was last logged. Only Read uses it.
	logged string
}

// gpuInfo has the facts of a GPU that do not change while the connection lasts and the MIG mode stays. They are read once,
// because the queries of handles and profiles are the slow ones on real hardware.
type gpuInfo struct {
	handle nvml.Device
	// name is the GPU's name, kept because every call looks the GPU up by it.
	name string
	// gpu holds the constant fields; the other fields are zero.
	gpu gpu.GPU
	// profiles are the MIG profiles that the GPU supports.
	profiles []rawProfile
	// links are the numbers of the NVLinks, active or not.
	links []int
	// remotes are the PCI addresses at the other ends of links that were active once. Only Read uses them.
	remotes map[int]string
	// omitted are the facts that could not be read; the next Read tries again.
	omitted []error
}

// gpuInfo returns the constant facts of the GPU and reads those from NVML that no earlier read has. Calls must be
// serialized.
func (s *Session) gpuInfo(ctx context.Context, d *device) (*gpuInfo, error) {
	if known := d.info.Load(); known != nil && len(known.omitted) == 0 {
		return known, nil
	}
	var a calls
	handle := query(&a, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return s.node.library.DeviceGetHandleByIndex(d.index) })
	if a.err != nil {
		return nil, a.err
	}
	g := identity(ctx, &a, handle, s.cgroups.own)
	g.Index = d.index
	read := &gpuInfo{handle: handle, name: g.Name(), gpu: g, links: nvlinks(&a, handle), remotes: map[int]string{}}
	if known := d.info.Load(); known != nil {
		read.profiles, read.gpu.Geometry = known.profiles, known.gpu.Geometry
	}
	s.readProfiles(ctx, &a, read)
	read.gpu.MIGFixed = read.gpu.TogglesMIG() && (s.refused.has(read.name) || migFixed(&a, handle))
	if a.err != nil {
		return nil, a.err
	}
	read.gpu.NUMA, read.gpu.PCIeRoot = s.sysfs.numa(g.PCI), s.sysfs.root(g.PCI)
	read.omitted = a.omitted
	d.info.Store(read)
	return read, nil
}

// migFixed reports whether the driver reports that it does not change the MIG mode without a reset: for the virtual GPU of a
// guest, and where it has no such change.
func migFixed(a *calls, d nvml.Device) bool {
	mode, _ := queryExtra(a, "nvmlDeviceGetVirtualizationMode", d.GetVirtualizationMode)
	resetless, has := queryExtra(a, "nvmlDeviceGetFieldValues", func() (float64, nvml.Return) {
		numbers, code := fieldNumbers(d, nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED)
		return numbers[0], code
	}, nvml.ERROR_INVALID_ARGUMENT)
	return mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU || has && resetless == 0
}

// readProfiles reads the MIG profiles of the GPU and what derives from them. nvml.h: nvmlDeviceGetGpuInstanceProfileInfo
// returns what is immutable only while the MIG mode stays. Unless all can be read, f keeps those that it has: with a part of
// them, MIG devices of claims would no longer be published, and their memory slices would be allocated again.
func (s *Session) readProfiles(ctx context.Context, a *calls, f *gpuInfo) {
	omitted := len(a.omitted)
	read := profiles(a, f.handle)
	if a.err != nil || len(a.omitted) > omitted {
		return
	}
	f.profiles = read
	var err error
	if f.gpu.Geometry, err = s.models.geometry(f.profiles, f.gpu.MemoryBytes); err != nil {
		klog.FromContext(ctx).Error(err, "MIG profiles cannot be decoded, the GPU is treated as one without MIG", "gpu", f.name, "product", f.gpu.Product)
	}
	if f.gpu.Multiprocessors == 0 {
		f.gpu.Multiprocessors = largestProfileMultiprocessors(f.gpu)
	}
}

// identity queries the product, the identifiers and the size of the GPU.
func identity(ctx context.Context, a *calls, d nvml.Device, ownCgroup string) gpu.GPU {
	pci := query(a, "nvmlDeviceGetPciInfo", d.GetPciInfo)
	uuid := query(a, "nvmlDeviceGetUUID", d.GetUUID)
	product := query(a, "nvmlDeviceGetName", d.GetName)
	capability, _ := queryExtra(a, "nvmlDeviceGetCudaComputeCapability", func() ([2]int, nvml.Return) {
		major, minor, code := d.GetCudaComputeCapability()
		return [2]int{major, minor}, code
	})
	brand, _ := queryExtra(a, "nvmlDeviceGetBrand", d.GetBrand)
	architecture, _ := queryExtra(a, "nvmlDeviceGetArchitecture", d.GetArchitecture)
	cores, _ := queryExtra(a, "nvmlDeviceGetNumGpuCores", d.GetNumGpuCores)
	total := totalMemory(ctx, a, d, ownCgroup)
	return gpu.GPU{
		PCI:             address(pci),
		UUID:            uuid,
		Product:         product,
		Brand:           brandName(brand),
		Architecture:    architectureName(architecture),
		ComputeMajor:    capability[0],
		ComputeMinor:    capability[1],
		MemoryBytes:     total,
		ShareableBytes:  shareable(a, d, total),
		Multiprocessors: multiprocessors(cores, capability[0], capability[1]),
	}
}

// address returns the PCI address in the form that sysfs uses. NVML's own text has eight digits of domain and no
// function.
func address(pci nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}

// profiles queries every MIG profile that the header defines. Drivers return them with MIG disabled too. The V form of
// the call, which also returns names, is documented to require MIG mode, so only the name is taken from it.
func profiles(a *calls, d nvml.Device) []rawProfile {
	var known []rawProfile
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, has := queryExtra(a, "nvmlDeviceGetGpuInstanceProfileInfo", func() (nvml.GpuInstanceProfileInfo, nvml.Return) {
			return d.GetGpuInstanceProfileInfo(enum)
		}, nvml.ERROR_INVALID_ARGUMENT)
		if !has || info.InstanceCount == 0 {
			continue
		}
		named, _ := queryExtra(a, "nvmlDeviceGetGpuInstanceProfileInfoV", func() (nvml.GpuInstanceProfileInfo_v2, nvml.Return) {
			return d.GetGpuInstanceProfileInfoV(enum).V2()
		}, nvml.ERROR_INVALID_ARGUMENT)
		placements, _ := queryExtra(a, "nvmlDeviceGetGpuInstancePossiblePlacements", func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return d.GetGpuInstancePossiblePlacements(&info)
		})
		known = append(known, rawProfile{enum: enum, name: cString(named.Name[:]), info: info, placements: placements})
	}
	return known
}

// multiprocessors returns the number of SMs of a whole GPU, which NVML reports only as a number of cores; 0 for an
// architecture that the table lacks.
func multiprocessors(cores, major, minor int) int {
	perSM := map[[2]int]int{
		{6, 0}: 64, {6, 1}: 128, {7, 0}: 64, {7, 5}: 64,
		{8, 0}: 64, {8, 6}: 128, {8, 7}: 128, {8, 9}: 128, {9, 0}: 128,
		{10, 0}: 128, {10, 1}: 128, {10, 3}: 128, {11, 0}: 128, {12, 0}: 128, {12, 1}: 128,
	}[[2]int{major, minor}]
	if perSM == 0 {
		return 0
	}
	return cores / perSM
}

// largestProfileMultiprocessors returns the SMs of the largest MIG profile, for a GPU that does not report its cores
// because MIG is enabled. On GPUs whose MIG mode changes without a reset, that profile has all SMs, and the number must
// not depend on the mode. On an A100 the profile has fewer SMs than the GPU, so the number stays unknown (0).
func largestProfileMultiprocessors(g gpu.GPU) int {
	if !g.TogglesMIG() {
		return 0
	}
	most := 0
	for _, p := range g.Geometry.Profiles() {
		most = max(most, p.Multiprocessors)
	}
	return most
}

func architectureName(a nvml.DeviceArchitecture) string {
	return map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
		nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
		nvml.DEVICE_ARCH_ADA: "Ada Lovelace", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
		nvml.DEVICE_ARCH_RUBIN: "Rubin",
	}[a]
}

func brandName(b nvml.BrandType) string {
	return map[nvml.BrandType]string{
		nvml.BRAND_QUADRO: "Quadro", nvml.BRAND_TESLA: "Tesla", nvml.BRAND_NVS: "NVS", nvml.BRAND_GRID: "Grid",
		nvml.BRAND_GEFORCE: "GeForce", nvml.BRAND_TITAN: "Titan", nvml.BRAND_NVIDIA_VAPPS: "NvidiaVApps",
		nvml.BRAND_NVIDIA_VPC: "NvidiaVPC", nvml.BRAND_NVIDIA_VCS: "NvidiaVCS", nvml.BRAND_NVIDIA_VWS: "NvidiaVWS",
		nvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming", nvml.BRAND_QUADRO_RTX: "QuadroRTX",
		nvml.BRAND_NVIDIA_RTX: "NvidiaRTX", nvml.BRAND_NVIDIA: "Nvidia", nvml.BRAND_GEFORCE_RTX: "GeForceRTX",
		nvml.BRAND_TITAN_RTX: "TitanRTX",
	}[b]
}
