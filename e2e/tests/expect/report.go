package expect

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Report lists the devices that NVML shows inside one container: the output of nvidia-smi -L, or the probe's line of JSON.
type Report struct {
	GPUs []SeenGPU `json:"gpus"`
	// CUDA is how many devices CUDA counts; negative when it could not be asked. Only the probe reports it.
	CUDA int `json:"cuda"`
}

// SeenGPU is a GPU as the container's NVML shows it. In MIG mode only its instances are usable. nvidia-smi -L prints neither memory
// nor multiprocessors, which are 0 then, and no MIG mode: a GPU is in MIG mode if MIG devices follow it.
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
	Name string
	// MemoryMiB is 0 if the report does not have it.
	MemoryMiB int64
	// Multiprocessors is 0 for a whole GPU, and if the report does not have it.
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

// ParseReport finds the probe's line in a container's log, or else the output of nvidia-smi -L; false when there is neither.
func ParseReport(log string) (Report, bool) {
	if report, ok := parseLine[Report](log, `{"gpus":`); ok {
		return report, true
	}
	return parseList(log)
}

// The lines of nvidia-smi -L; older drivers do not pad the columns:
//
//	GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-950792bf-a01c-3f1a-e122-3473e67f54b2)
//	  MIG 3g.40gb     Device  0: (UUID: MIG-b3061c09-2a4c-5026-a575-79f86a5bb12c)
var (
	listedGPU = regexp.MustCompile(`^GPU +\d+: (.+) \(UUID: (GPU-\S+)\)$`)
	listedMIG = regexp.MustCompile(`^  MIG (\S+) +Device +\d+: \(UUID: (MIG-\S+)\)$`)
)

// parseList reads the output of nvidia-smi -L in a log; false when there is none.
func parseList(log string) (Report, bool) {
	var report Report
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if gpu := listedGPU.FindStringSubmatch(line); gpu != nil {
			report.GPUs = append(report.GPUs, SeenGPU{Name: gpu[1], UUID: gpu[2]})
		}
		if mig := listedMIG.FindStringSubmatch(line); mig != nil && len(report.GPUs) > 0 {
			parent := &report.GPUs[len(report.GPUs)-1]
			parent.MIG = true
			parent.Instances = append(parent.Instances, SeenInstance{Name: parent.Name + " MIG " + mig[1], UUID: mig[2]})
		}
	}
	return report, len(report.GPUs) > 0
}

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
	text := Seen{Name: g.Name, MemoryMiB: g.MemoryMiB, UUID: g.UUID}.String()
	if g.MIG {
		text += fmt.Sprintf(", MIG mode, MIG devices: %d", len(g.Instances))
	}
	return text
}

// String returns the device for people.
func (s Seen) String() string {
	text := s.Name
	if s.Profile != "" {
		text += " MIG " + s.Profile
	}
	if s.Multiprocessors > 0 {
		text += fmt.Sprintf(", %d SM", s.Multiprocessors)
	}
	if s.MemoryMiB > 0 {
		text += fmt.Sprintf(", %d MiB", s.MemoryMiB)
	}
	return text + ", " + s.UUID
}
