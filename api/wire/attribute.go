package wire

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The attributes of a device. A name without a domain belongs to the driver's domain. Names and types
// are those of NVIDIA's driver where it has the attribute, so that CEL selectors carry over.
const (
	// Type is the shape: gpu, mig, timeshare, mps, vfio or monitor.
	Type resourceapi.QualifiedName = "type"
	// UUID is the UUID of the GPU, on every device that stands for a whole one and has a driver; ParentUUID is the same
	// on a MIG device, whose own UUID does not exist before it is carved.
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
	// Profile is the name of the MIG profile, MIGProfileID its id, MIGStart the first memory slice.
	Profile      resourceapi.QualifiedName = "profile"
	MIGProfileID resourceapi.QualifiedName = "migProfileID"
	MIGStart     resourceapi.QualifiedName = "migStart"
	// Index is NVML's index, Minor the N of /dev/nvidiaN.
	Index resourceapi.QualifiedName = "index"
	Minor resourceapi.QualifiedName = "minor"
	// LinkIsland numbers the GPUs of a node that reach each other over NVLinks; absent without NVLinks,
	// so that matchAttribute demands them. Links are the relations to every GPU (EncodeLinks).
	LinkIsland resourceapi.QualifiedName = "linkIsland"
	Links      resourceapi.QualifiedName = "links"
	// Clique is clusterUUID.cliqueID of the NVLink fabric.
	Clique resourceapi.QualifiedName = "clique"
	// IOMMUGroup is the number of the group that goes to a virtual machine, on devices of type vfio.
	IOMMUGroup resourceapi.QualifiedName = "iommuGroup"
	// ECCMode is Enabled or Disabled; absent on a GPU without ECC.
	ECCMode resourceapi.QualifiedName = "eccMode"

	// PCIBusID, PCIeRoot and NUMANode are the attributes that drivers of all vendors share.
	PCIBusID resourceapi.QualifiedName = "resource.kubernetes.io/pciBusID"
	PCIeRoot resourceapi.QualifiedName = "resource.kubernetes.io/pcieRoot"
	NUMANode resourceapi.QualifiedName = "resource.kubernetes.io/numaNode"
)

// The capacities of a device.
const (
	Memory          resourceapi.QualifiedName = "memory"
	Multiprocessors resourceapi.QualifiedName = "multiprocessors"
	CopyEngines     resourceapi.QualifiedName = "copyEngines"
	Decoders        resourceapi.QualifiedName = "decoders"
	Encoders        resourceapi.QualifiedName = "encoders"
	JPEGEngines     resourceapi.QualifiedName = "jpegEngines"
	OFAEngines      resourceapi.QualifiedName = "ofaEngines"
	// Shares is how many claims a shared GPU serves; Compute is the percentage of multiprocessors that
	// an MPS client may use, 0 for no limit.
	Shares  resourceapi.QualifiedName = "shares"
	Compute resourceapi.QualifiedName = "compute"
)

// sliceCounter is the name of the counter that stands for a memory slice. The counters of engines
// have the names of the engine kinds.
func sliceCounter(slice int) string { return sliceCounters[slice] }

// sliceCounters are the names by slice: a reader of a cluster looks them up by the million.
var sliceCounters = func() (names [gpu.MaxSlices]string) {
	for slice := range names {
		names[slice] = fmt.Sprintf("memory-slice-%d", slice)
	}
	return names
}()

// DeviceName returns the name under which the device is published. It is a label: it is looked up
// (Decode), never parsed. A MIG device is named by profile id, since profile names contain what the
// API refuses and change with the driver.
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
