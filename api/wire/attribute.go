package wire

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The attributes of a device. A name without a domain is in the domain of the driver. Where NVIDIA's driver has the same
// attribute, name and type are equal, so that CEL selectors work with both.
const (
	// Type is the shape: gpu, mig, timeshare, mps, vfio or monitor.
	Type resourceapi.QualifiedName = "type"
	// UUID is the UUID of the GPU, on all devices except MIG devices and those of type vfio. ParentUUID is the same on a MIG
	// device, which has no UUID before it is created.
	UUID       resourceapi.QualifiedName = "uuid"
	ParentUUID resourceapi.QualifiedName = "parentUUID"
	// ProductName, Brand and Architecture are NVML's names.
	ProductName  resourceapi.QualifiedName = "productName"
	Brand        resourceapi.QualifiedName = "brand"
	Architecture resourceapi.QualifiedName = "architecture"
	// ComputeCapability, DriverVersion and CUDADriverVersion are semantic versions.
	ComputeCapability resourceapi.QualifiedName = "cudaComputeCapability"
	DriverVersion     resourceapi.QualifiedName = "driverVersion"
	CUDADriverVersion resourceapi.QualifiedName = "cudaDriverVersion"
	// Profile is the name of the MIG profile, MIGProfileID its id. MIGStart is the first memory slice, on devices with all
	// attributes.
	Profile      resourceapi.QualifiedName = "profile"
	MIGProfileID resourceapi.QualifiedName = "migProfileID"
	MIGStart     resourceapi.QualifiedName = "migStart"
	// Index is NVML's index, Minor is N in /dev/nvidiaN.
	Index resourceapi.QualifiedName = "index"
	Minor resourceapi.QualifiedName = "minor"
	// LinkIsland is the number of the GPU's link island (gpu.Node.Islands). It is absent without NVLinks, so that
	// matchAttribute on it requires NVLinks. Links are the connections to all GPUs of the node (EncodeLinks).
	LinkIsland resourceapi.QualifiedName = "linkIsland"
	Links      resourceapi.QualifiedName = "links"
	// Clique identifies the NVLink fabric as clusterUUID.cliqueID.
	Clique resourceapi.QualifiedName = "clique"
	// IOMMUGroup is the number of the IOMMU group that a virtual machine gets, on devices of type vfio.
	IOMMUGroup resourceapi.QualifiedName = "iommuGroup"
	// MemoryEnforced reports on shares whether the driver limits the memory of their containers: hard or none.
	MemoryEnforced resourceapi.QualifiedName = "memoryEnforced"
	// ECCMode is Enabled or Disabled; absent on a GPU without ECC.
	ECCMode resourceapi.QualifiedName = "eccMode"

	// PCIBusID, PCIeRoot and NUMANode are the standard attributes, which drivers of all vendors use.
	PCIBusID resourceapi.QualifiedName = "resource.kubernetes.io/pciBusID"
	PCIeRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"
	NUMANode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"
)

// The capacities of a device. Memory is in bytes, the others are counts.
const (
	Memory          resourceapi.QualifiedName = "memory"
	Multiprocessors resourceapi.QualifiedName = "multiprocessors"
	CopyEngines     resourceapi.QualifiedName = "copyEngines"
	Decoders        resourceapi.QualifiedName = "decoders"
	Encoders        resourceapi.QualifiedName = "encoders"
	JPEGEngines     resourceapi.QualifiedName = "jpegEngines"
	OFAEngines      resourceapi.QualifiedName = "ofaEngines"
	// Shares is the number of shares of a shared GPU. Compute is the percentage of the multiprocessors that an MPS client may
	// use; 0 means no limit.
	Shares  resourceapi.QualifiedName = "shares"
	Compute resourceapi.QualifiedName = "compute"
)

// sliceCounter returns the name of the counter of a memory slice. Counters of engines have the names of the engine kinds
// (gpu.Engine.String).
func sliceCounter(slice int) string { return sliceCounters[slice] }

// sliceCounters are the names by memory slice, computed once: reading the ResourceSlices of a large cluster looks up millions
// of them.
var sliceCounters = func() (names [gpu.MaxSlices]string) {
	for slice := range names {
		names[slice] = fmt.Sprintf("memory-slice-%d", slice)
	}
	return names
}()

// DeviceName returns the name under which the device is published. It is an identifier that is found by comparison (Decode) and
// must not be parsed. MIG devices are named by profile id, because a profile name has characters that the API rejects and
// depends on the driver version.
func DeviceName(d gpu.Device) string {
	switch d.Shape {
	case gpu.Whole:
		return d.GPU
	case gpu.MIG:
		return fmt.Sprintf("%s-%v-%d-%d", d.GPU, d.Shape, d.Placement.Profile, d.Placement.Start)
	case gpu.None, gpu.TimeShare, gpu.MPS, gpu.VFIO, gpu.Monitor:
	}
	return fmt.Sprintf("%s-%v", d.GPU, d.Shape)
}

// PoolName returns the name of the node's pool.
func PoolName(node, driver string) string { return node + "-" + driver }

// PoolNode returns the node of the pool, and false if the driver has no pool with the name.
func PoolNode(pool, driver string) (node string, ok bool) { return strings.CutSuffix(pool, "-"+driver) }
