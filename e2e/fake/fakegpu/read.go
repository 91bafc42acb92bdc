package fakegpu

import (
	"fmt"
	"strings"
)

// State is the state of a machine at one moment.
type State struct {
	Node          string     `json:"node"`
	Machine       string     `json:"machine"`
	DriverVersion string     `json:"driverVersion"`
	DriverLoaded  bool       `json:"driverLoaded"`
	GPUs          []GPUState `json:"gpus"`
	Faults        []Fault    `json:"faults,omitempty"`
}

// GPUState is the state of one GPU.
type GPUState struct {
	Index      int    `json:"index"`
	UUID       string `json:"uuid"`
	Product    string `json:"product"`
	MIG        bool   `json:"mig"`
	PendingMIG bool   `json:"pendingMIG"`
	// TimeSlice is the class that nvidia-smi set: 0 default, 1 short, 2 medium, 3 long.
	TimeSlice   int         `json:"timeSlice,omitempty"`
	ComputeMode ComputeMode `json:"computeMode,omitempty"`
	// Lost is a GPU that does not respond: it has fallen off the bus or requires a reset.
	Lost bool `json:"lost,omitempty"`
	// HeldByPersistenced reports whether nvidia-persistenced has the GPU open.
	HeldByPersistenced bool `json:"heldByPersistenced,omitempty"`
	// Resets counts the resets by nvidia-smi since the machine was made.
	Resets    int        `json:"resets,omitempty"`
	Instances []Instance `json:"instances,omitempty"`
}

// ComputeMode determines which processes may use a GPU (nvmlComputeMode_t).
type ComputeMode int

// The compute modes that a driver accepts.
const (
	ComputeDefault          ComputeMode = 0
	ComputeProhibited       ComputeMode = 2
	ComputeExclusiveProcess ComputeMode = 3
)

// Instance is a GPU instance.
type Instance struct {
	ID       int       `json:"id"`
	Profile  int       `json:"profile"`
	Name     string    `json:"name"`
	Start    int       `json:"start"`
	Size     int       `json:"size"`
	Computes []Compute `json:"computes,omitempty"`
}

// Compute is a compute instance, that is, a MIG device.
type Compute struct {
	ID      int    `json:"id"`
	Profile int    `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	UUID    string `json:"uuid"`
}

// Fault is an injected fault of an NVML function.
type Fault struct {
	Function string `json:"function"`
	Code     int    `json:"code,omitempty"`
	Count    int    `json:"count,omitempty"`
	DelayMS  int    `json:"delayMS,omitempty"`
}

// Read returns the state of the machine under dir without NVML, so that tests compare with the
// state itself and not with a library's view of it.
func Read(dir string) (State, error) {
	spec, err := ReadSpec(dir)
	if err != nil {
		return State{}, err
	}
	state := State{Node: spec.Node, Machine: spec.Machine}
	err = withState(dir, func(s *session) error {
		l := s.current()
		state.DriverVersion, state.DriverLoaded = text(l.DriverVersion[:]), l.Loaded != 0
		h := &s.state().Hardware
		for i := range int(h.GPUCount) {
			state.GPUs = append(state.GPUs, gpuReport(i, h, &l.GPUs[i]))
		}
		for _, f := range l.Faults[:l.FaultCount] {
			state.Faults = append(state.Faults, Fault{text(f.Function[:]), int(f.Code), int(f.Count), int(f.DelayMS)})
		}
		return nil
	})
	return state, err
}

func gpuReport(i int, h *hardware, g *gpuState) GPUState {
	model := &h.Models[h.GPUs[i].Model]
	report := GPUState{
		Index: i, UUID: text(h.GPUs[i].UUID[:]), Product: text(model.Product[:]),
		MIG: g.MIG != 0, PendingMIG: g.PendingMIG != 0, TimeSlice: int(g.TimeSlice),
		ComputeMode: ComputeMode(g.ComputeMode), Lost: g.Lost != 0, Resets: int(g.Resets),
		HeldByPersistenced: g.Persistence == heldByDaemon,
	}
	for id, instance := range g.Instances {
		if instance.Used != 0 {
			report.Instances = append(report.Instances, instanceReport(id, model, &instance))
		}
	}
	return report
}

func instanceReport(id int, model *modelPart, instance *instance) Instance {
	report := Instance{ID: id, Profile: int(instance.Profile), Start: int(instance.Start), Size: int(instance.Size)}
	for _, p := range model.Profiles[:model.ProfileCount] {
		if p.ID == instance.Profile {
			report.Name = text(p.Name[:])
		}
	}
	for id, c := range instance.Computes {
		if c.Used == 0 {
			continue
		}
		u := c.UUID
		report.Computes = append(report.Computes, Compute{
			ID: id, Profile: int(c.Profile), Start: int(c.Start), Size: int(c.Size),
			UUID: fmt.Sprintf("MIG-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16]),
		})
	}
	return report
}

func text(b []byte) string {
	before, _, _ := strings.Cut(string(b), "\x00")
	return before
}
