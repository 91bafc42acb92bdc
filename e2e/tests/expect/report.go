package expect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Report is what the probe saw from inside one container: its line of JSON.
type Report struct {
	GPUs []SeenGPU `json:"gpus"`
	// CUDA is how many devices CUDA counts; negative when it could not be asked.
	CUDA int `json:"cuda"`
}

// SeenGPU is a GPU as the container's NVML shows it. In MIG mode only its instances are usable.
type SeenGPU struct {
	UUID      string         `json:"uuid"`
	Name      string         `json:"name"`
	MemoryMiB int64          `json:"memoryMiB"`
	MIG       bool           `json:"mig"`
	Instances []SeenInstance `json:"instances"`
}

// SeenInstance is a MIG device as the container's NVML shows it.
type SeenInstance struct {
	UUID            string `json:"uuid"`
	Name            string `json:"name"`
	MemoryMiB       int64  `json:"memoryMiB"`
	Multiprocessors int64  `json:"multiprocessors"`
	GPUInstance     int    `json:"gpuInstance"`
	ComputeInstance int    `json:"computeInstance"`
}

// Seen is one usable device of a Report.
type Seen struct {
	// Profile is the MIG profile; empty for a whole GPU.
	Profile string
	// UUID is the device's own, Parent the GPU's that carries a MIG device.
	UUID, Parent string
	// Name is the product's.
	Name      string
	MemoryMiB int64
	// Multiprocessors is 0 for a whole GPU: NVML does not tell.
	Multiprocessors int64
}

// Usage is what CUDA gave to the probe: its line of JSON when it is asked for its share.
type Usage struct {
	Devices []UsedDevice `json:"devices"`
	// AllocatedMiB is how much could be allocated on the first device; Refused is the CUDA error of 1 MiB
	// more, 0 when that was given too.
	AllocatedMiB int64 `json:"allocatedMiB"`
	Refused      int   `json:"refused"`
}

// UsedDevice is a device as CUDA shows it under the limits of the container.
type UsedDevice struct {
	UUID            string `json:"uuid"`
	FreeMiB         int64  `json:"freeMiB"`
	Multiprocessors int    `json:"multiprocessors"`
}

// ParseReport finds the probe's line in a container's log; false when there is none.
func ParseReport(log string) (Report, bool) { return parseLine[Report](log, `{"gpus":`) }

// ParseUsage finds the probe's line about its share in a container's log; false when there is none.
func ParseUsage(log string) (Usage, bool) { return parseLine[Usage](log, `{"devices":`) }

// parseLine decodes the first line that begins so.
func parseLine[T any](log, prefix string) (T, bool) {
	for line := range strings.Lines(log) {
		var decoded T
		if strings.HasPrefix(line, prefix) && json.Unmarshal([]byte(line), &decoded) == nil {
			return decoded, true
		}
	}
	var none T
	return none, false
}

// String returns the memory and multiprocessors that CUDA provided, as text.
func (u Usage) String() string {
	text := fmt.Sprintf("CUDA allocates %d MiB", u.AllocatedMiB)
	if u.Refused == 0 {
		text += " and more"
	}
	for _, d := range u.Devices {
		text += fmt.Sprintf(", %d SM", d.Multiprocessors)
	}
	return text
}

// Devices returns what the container can use: whole GPUs and MIG devices, in the order of the report.
func (r Report) Devices() []Seen {
	var devices []Seen
	for _, g := range r.GPUs {
		if !g.MIG {
			devices = append(devices, Seen{UUID: g.UUID, Name: g.Name, MemoryMiB: g.MemoryMiB})
			continue
		}
		for _, i := range g.Instances {
			_, profile, _ := strings.Cut(i.Name, " MIG ")
			devices = append(devices, Seen{
				Profile: profile, UUID: i.UUID, Parent: g.UUID, Name: g.Name,
				MemoryMiB: i.MemoryMiB, Multiprocessors: i.Multiprocessors,
			})
		}
	}
	return devices
}

// String returns the GPU for people.
func (g SeenGPU) String() string {
	text := fmt.Sprintf("%s, %d MiB, %s", g.Name, g.MemoryMiB, g.UUID)
	if g.MIG {
		text += fmt.Sprintf(", MIG mode, MIG devices: %d", len(g.Instances))
	}
	return text
}

// String returns the device for people.
func (s Seen) String() string {
	if s.Profile == "" {
		return fmt.Sprintf("%s, %d MiB, %s", s.Name, s.MemoryMiB, s.UUID)
	}
	return fmt.Sprintf("%s MIG %s, %d SM, %d MiB, %s", s.Name, s.Profile, s.Multiprocessors, s.MemoryMiB, s.UUID)
}
