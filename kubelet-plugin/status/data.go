package status

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The type of the data, for its readers.
const (
	APIVersion = "gpu.tessera.dev/v1alpha1"
	Kind       = "DeviceStatus"
)

// Data is status.devices[].data of a claim: it identifies one device in the output of nvidia-smi and of exporters. Names are those of the device's
// attributes, where they exist. Fields are only added.
type Data struct {
	metav1.TypeMeta `json:",inline"`

	// Type is the shape: gpu, mig, timeshare, mps, vfio or monitor.
	Type string `json:"type"`
	// GPU, PCIBusID and ProductName are those of the GPU, also for a MIG device.
	GPU         string `json:"gpu"`
	PCIBusID    string `json:"pciBusID,omitempty"`
	ProductName string `json:"productName,omitempty"`
	// UUID is a value for CUDA_VISIBLE_DEVICES: GPU-… or MIG-…. ParentUUID is the GPU's, only set for a MIG device.
	UUID       string `json:"uuid,omitempty"`
	ParentUUID string `json:"parentUUID,omitempty"`
	// IOMMUGroup is the number of the IOMMU group of a GPU for a virtual machine.
	IOMMUGroup string `json:"iommuGroup,omitempty"`
	// MIG is set for a MIG device.
	MIG *MIGData `json:"mig,omitempty"`
	// TimeSlice is set if the claim requested one, MPS if a daemon serves the device.
	TimeSlice *TimeSliceData `json:"timeSlice,omitempty"`
	MPS       *MPSData       `json:"mps,omitempty"`
	// AdminAccess marks a device that the claim monitors and does not hold.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// CDIDeviceIDs are what the container runtime was given.
	CDIDeviceIDs []string `json:"cdiDeviceIDs,omitempty"`
}

// MIGData is the placement of a MIG device and its IDs in NVML.
type MIGData struct {
	Profile           string        `json:"profile,omitempty"`
	Placement         gpu.Placement `json:"placement"`
	GPUInstanceID     int           `json:"gpuInstanceID"`
	ComputeInstanceID int           `json:"computeInstanceID"`
}

// TimeSliceData is the time slice of the device's GPU: Default, Short, Medium or Long. They differ if an earlier claim requested another one.
type TimeSliceData struct {
	Interval          string `json:"interval"`
	RequestedInterval string `json:"requestedInterval"`
}

// MPSData is the daemon that serves the device and the limits of this claim's clients; 0 is no limit.
type MPSData struct {
	Daemon                       string `json:"daemon"`
	ActiveThreadPercentage       int    `json:"activeThreadPercentage,omitempty"`
	PinnedDeviceMemoryLimitBytes int64  `json:"pinnedDeviceMemoryLimitBytes,omitempty"`
}

// deviceData returns the data of a prepared device.
func deviceData(a prepare.Answer) Data {
	d := Data{
		TypeMeta:    metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		Type:        a.Use.Shape.String(),
		GPU:         a.Use.GPU,
		PCIBusID:    a.GPU.PCI,
		ProductName: a.GPU.Product,
		UUID:        a.GPU.UUID,
		IOMMUGroup:  a.IOMMUGroup,

		AdminAccess:  a.Admin,
		CDIDeviceIDs: a.CDIDevices,
	}
	if i := a.Instance; i != nil {
		profile, _ := a.GPU.Geometry.Profile(i.Placement.Profile)
		d.UUID, d.ParentUUID = i.UUID, a.GPU.UUID
		d.MIG = &MIGData{Profile: profile.Name, Placement: i.Placement, GPUInstanceID: i.GI, ComputeInstanceID: i.CI}
	}
	if requested := a.Settings.TimeSlice; requested != "" {
		d.TimeSlice = &TimeSliceData{Interval: a.Interval, RequestedInterval: requested}
	}
	if c := a.Daemon; c != nil {
		d.MPS = &MPSData{
			Daemon: c.Name, ActiveThreadPercentage: c.ActiveThreadPercentage, PinnedDeviceMemoryLimitBytes: c.PinnedMemoryBytes,
		}
	}
	return d
}

// raw returns the data as it is written.
func (d Data) raw() ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write the data of %s: %w", d.GPU, err)
	}
	return text, nil
}
