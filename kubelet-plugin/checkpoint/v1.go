package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// formatV1 is the format that this package writes. Every field is always written, so that merge can identify the unknown
// ones.
const formatV1 = 1

type recordV1 struct {
	header
	UID       string       `json:"uid"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	State     string       `json:"state"`
	BootID    string       `json:"bootID"`
	Devices   []deviceV1   `json:"devices"`
	Instances []instanceV1 `json:"instances"`
}

type deviceV1 struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID"`
	GPU     string `json:"gpu"`
	// Shape is the published name of the shape (gpu.Shape).
	Shape string `json:"shape"`
	// Placement is null except for MIG devices.
	Placement *placementV1 `json:"placement"`
	Admin     bool         `json:"admin"`
	// TimeSlice is the requested class, Interval the one in effect.
	TimeSlice string `json:"timeSlice"`
	Interval  string `json:"interval"`
	// Share is null except for shared devices, MPS except for devices with an MPS daemon of one claim only. Agents that
	// do not know the two fields neither write such records nor create such devices.
	Share *shareV1 `json:"share"`
	MPS   *mpsV1   `json:"mps"`
	// MemoryLimit is what containers can allocate, 0 for what the share has; MaxMemoryLimit is the most to which it can be raised, 0 for the same. Agents without
	// the two fields limit containers that start to what the share has.
	MemoryLimit    uint64 `json:"memoryLimitBytes"`
	MaxMemoryLimit int64  `json:"maxMemoryLimitBytes"`
	// Extras are names of device nodes; this version does not inject those that it does not know.
	Extras []params.Extra `json:"extras"`
}

type shareV1 struct {
	MemoryBytes uint64 `json:"memoryBytes"`
	Shares      int    `json:"shares"`
	Compute     int    `json:"compute"`
}

type mpsV1 struct {
	ActiveThreadPercentage int `json:"activeThreadPercentage"`
	// PinnedMemoryBytes is the limit that agents without DeviceMemoryBytes apply. They run one daemon for the GPUs of a claim with equal settings: it is
	// equal for all GPUs of a daemon, so that they find the daemon that runs, and no limit is removed, for which they would restart it.
	PinnedMemoryBytes int64 `json:"pinnedMemoryBytes"`
	// DeviceMemoryBytes is the limit of this device. It is null in records of those agents, whose daemons are kept.
	DeviceMemoryBytes *int64 `json:"deviceMemoryBytes"`
}

type placementV1 struct {
	Profile int `json:"profile"`
	Start   int `json:"start"`
	Size    int `json:"size"`
}

type instanceV1 struct {
	GPU             string      `json:"gpu"`
	Placement       placementV1 `json:"placement"`
	GI              int         `json:"gi"`
	CI              int         `json:"ci"`
	UUID            string      `json:"uuid"`
	Multiprocessors int         `json:"multiprocessors"`
}

// states are the states that every format has.
var states = []prepare.State{prepare.StatePreparing, prepare.StatePrepared, prepare.StateUnpreparing}

func encodeV1(r prepare.Record) recordV1 {
	v := recordV1{
		header: header{Version: formatV1, ReadableBy: formatV1},
		UID:    r.UID, Namespace: r.Namespace, Name: r.Name,
		State: string(r.State), BootID: r.BootID,
		Devices: []deviceV1{}, Instances: []instanceV1{},
	}
	for _, w := range r.Wanted {
		d := encodeDevice(w)
		if d.MPS != nil && !w.DaemonByLimit {
			d.MPS.PinnedMemoryBytes = largestLimit(r, w)
		}
		v.Devices = append(v.Devices, d)
	}
	for _, i := range r.Instances {
		v.Instances = append(v.Instances, instanceV1{
			GPU: i.GPU, Placement: placementV1(i.Placement),
			GI: i.GI, CI: i.CI, UUID: i.UUID, Multiprocessors: i.Multiprocessors,
		})
	}
	return v
}

func encodeDevice(w prepare.Wanted) deviceV1 {
	d := deviceV1{
		Request: w.Request, Pool: w.Pool, Device: w.Device, ShareID: w.ShareID,
		GPU: w.Use.GPU, Shape: w.Use.Shape.String(),
		Admin: w.Admin, TimeSlice: w.Settings.TimeSlice, Interval: w.Interval, Extras: w.Settings.Extras.List(),
		MemoryLimit: w.MemoryLimit, MaxMemoryLimit: w.Settings.MemoryLimitBytes,
	}
	if w.Use.Shape == gpu.MIG {
		p := placementV1(w.Use.Placement)
		d.Placement = &p
	}
	if w.Use.Share != (gpu.Share{}) {
		s := shareV1(w.Use.Share)
		d.Share = &s
	}
	if mps := w.Settings.MPS; mps.Private {
		d.MPS = &mpsV1{ActiveThreadPercentage: mps.ActiveThreadPercentage, PinnedMemoryBytes: mps.PinnedMemoryBytes}
		if !w.DaemonByLimit {
			d.MPS.DeviceMemoryBytes = &mps.PinnedMemoryBytes
		}
	}
	return d
}

// largestLimit returns the largest memory limit of the devices that the daemon of the claim's device serves; 0 if none has one.
func largestLimit(r prepare.Record, w prepare.Wanted) int64 {
	limit := w.Settings.MPS.PinnedMemoryBytes
	for _, other := range r.Wanted {
		mps := other.Settings.MPS
		if w.Use.Shape == gpu.Whole && other.Use.Shape == gpu.Whole && !other.Admin && mps.Private && mps.ActiveThreadPercentage == w.Settings.MPS.ActiveThreadPercentage {
			limit = max(limit, mps.PinnedMemoryBytes)
		}
	}
	return limit
}

func decodeV1(body []byte) (prepare.Record, error) {
	var v recordV1
	if err := json.Unmarshal(body, &v); err != nil {
		return prepare.Record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if v.Version < formatV1 {
		return prepare.Record{}, fmt.Errorf("%w: it has format %d", errDamaged, v.Version)
	}
	return v.record()
}

func (v recordV1) record() (prepare.Record, error) {
	r := prepare.Record{
		Ref:    prepare.Ref{UID: v.UID, Namespace: v.Namespace, Name: v.Name},
		State:  prepare.State(v.State),
		BootID: v.BootID,
	}
	if r.UID == "" || !slices.Contains(states, r.State) {
		return prepare.Record{}, fmt.Errorf("%w: claim %q in state %q", errDamaged, v.UID, v.State)
	}
	for _, d := range v.Devices {
		w, err := d.wanted()
		if err != nil {
			return prepare.Record{}, err
		}
		r.Wanted = append(r.Wanted, w)
	}
	for _, i := range v.Instances {
		r.Instances = append(r.Instances, gpu.Instance{
			GPU: i.GPU, Placement: gpu.Placement(i.Placement),
			GI: i.GI, CI: i.CI, UUID: i.UUID, Multiprocessors: i.Multiprocessors,
		})
	}
	return r, nil
}

func (d deviceV1) wanted() (prepare.Wanted, error) {
	shape, err := gpu.ParseShape(d.Shape)
	if err != nil {
		return prepare.Wanted{}, fmt.Errorf("%w: device %s: %w", errDamaged, d.Device, err)
	}
	w := prepare.Wanted{
		Result:   prepare.Result{Request: d.Request, Pool: d.Pool, Device: d.Device, ShareID: d.ShareID},
		Use:      gpu.Device{GPU: d.GPU, Use: gpu.Use{Shape: shape}},
		Admin:    d.Admin,
		Settings: prepare.Settings{TimeSlice: d.TimeSlice, MemoryLimitBytes: d.MaxMemoryLimit, Extras: params.ExtrasOf(d.Extras...)},
		Interval: d.Interval, MemoryLimit: d.MemoryLimit,
	}
	if d.Share != nil {
		w.Use.Share = gpu.Share(*d.Share)
	}
	if d.MPS != nil {
		w.Settings.MPS = params.MPSSettings{
			Private:                true,
			ActiveThreadPercentage: d.MPS.ActiveThreadPercentage, PinnedMemoryBytes: d.MPS.PinnedMemoryBytes,
		}
		w.DaemonByLimit = d.MPS.DeviceMemoryBytes == nil
		if !w.DaemonByLimit {
			w.Settings.MPS.PinnedMemoryBytes = *d.MPS.DeviceMemoryBytes
		}
	}
	if shape != gpu.MIG {
		return w, nil
	}
	if d.Placement == nil || !d.Placement.valid() {
		return prepare.Wanted{}, fmt.Errorf("%w: device %s: no placement", errDamaged, d.Device)
	}
	w.Use.Placement = gpu.Placement(*d.Placement)
	return w, nil
}

// valid reports whether the placement is within the range of memory slices; whether a GPU allows it is up to its
// geometry.
func (p placementV1) valid() bool {
	return p.Start >= 0 && p.Size > 0 && p.Size <= gpu.MaxSlices-p.Start
}
