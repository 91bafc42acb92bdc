package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// healthV1 is the format of health that this package writes, in the envelope and with the header of a record. Every
// field is always written, as in records.
type healthV1 struct {
	header
	// Boot is the boot to which links and resets belong.
	Boot   string    `json:"boot"`
	Links  []linksV1 `json:"links"`
	Resets []resetV1 `json:"resets"`
	Faults []faultV1 `json:"faults"`
}

type linksV1 struct {
	GPU string `json:"gpu"`
	Up  int    `json:"up"`
}

type resetV1 struct {
	GPU string    `json:"gpu"`
	At  time.Time `json:"at"`
}

type faultV1 struct {
	identityV1
	UUID     string       `json:"uuid"`
	Severity gpu.Severity `json:"severity"`
	Remedy   gpu.Remedy   `json:"remedy"`
	Detail   string       `json:"detail"`
	Since    time.Time    `json:"since"`
	Last     time.Time    `json:"last"`
	Count    int          `json:"count"`
	Boot     string       `json:"boot"`
	// Gone and Over are null while the fault is present and in effect.
	Gone *time.Time `json:"gone"`
	// Quiet is a duration such as 5m0s.
	Quiet string     `json:"quiet"`
	Over  *time.Time `json:"over"`
}

// identityV1 has the fields that identify a fault.
type identityV1 struct {
	GPU string `json:"gpu"`
	// Placement is null if the whole GPU is affected.
	Placement *placementV1 `json:"placement"`
	Signal    string       `json:"signal"`
	XID       int          `json:"xid"`
}

// encodeHealth returns the file content for the health. Fields of the present file that this version does not know are
// kept; old is nil if there is no file.
func encodeHealth(h gpu.Health, old []byte) ([]byte, error) {
	v := healthV1{header: header{Version: formatV1, ReadableBy: formatV1}, Boot: h.Boot, Links: []linksV1{}, Resets: []resetV1{}, Faults: []faultV1{}}
	for name, up := range h.Links {
		v.Links = append(v.Links, linksV1{GPU: name, Up: up})
	}
	for name, at := range h.Resets {
		v.Resets = append(v.Resets, resetV1{GPU: name, At: at})
	}
	slices.SortFunc(v.Links, func(a, b linksV1) int { return cmp.Compare(a.GPU, b.GPU) })
	slices.SortFunc(v.Resets, func(a, b resetV1) int { return cmp.Compare(a.GPU, b.GPU) })
	for _, f := range h.Faults {
		v.Faults = append(v.Faults, encodeFault(f))
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return seal(body, old, carryHealth)
}

func encodeFault(f gpu.Fault) faultV1 {
	v := faultV1{
		identityV1: identityV1{GPU: f.GPU, Signal: string(f.Signal), XID: f.XID},
		UUID:       f.UUID, Severity: f.Severity, Remedy: f.Remedy, Detail: f.Detail,
		Since: f.Since, Last: f.Last, Count: f.Count, Boot: f.Boot, Quiet: f.Quiet.String(),
	}
	if f.Placement != (gpu.Placement{}) {
		p := placementV1(f.Placement)
		v.Placement = &p
	}
	if !f.Gone.IsZero() {
		v.Gone = &f.Gone
	}
	if !f.Over.IsZero() {
		v.Over = &f.Over
	}
	return v
}

// decodeHealth returns the health in a file. The error wraps errDamaged or is a newerError.
func decodeHealth(data []byte) (gpu.Health, error) {
	body, err := unwrap(data)
	if err != nil {
		return gpu.Health{}, err
	}
	if body == nil {
		return gpu.Health{}, fmt.Errorf("%w: it has no checksum", errDamaged)
	}
	var v healthV1
	if err = json.Unmarshal(body, &v); err == nil {
		var h gpu.Health
		if h, err = v.health(); err == nil {
			return h, nil
		}
	}
	var h header
	if json.Unmarshal(body, &h) == nil && h.Version > formatV1 {
		// The checksum is right and the record cannot be decoded: readableBy is too low. It is not damaged.
		return gpu.Health{}, &newerError{version: h.Version, readableBy: h.Version}
	}
	return gpu.Health{}, fmt.Errorf("%w: %w", errDamaged, err)
}

func (v healthV1) health() (gpu.Health, error) {
	if v.Version < formatV1 {
		return gpu.Health{}, fmt.Errorf("it has format %d", v.Version)
	}
	h := gpu.Health{Boot: v.Boot}
	for _, l := range v.Links {
		if h.Links == nil {
			h.Links = map[string]int{}
		}
		h.Links[l.GPU] = l.Up
	}
	for _, r := range v.Resets {
		if h.Resets == nil {
			h.Resets = map[string]time.Time{}
		}
		h.Resets[r.GPU] = r.At
	}
	for _, f := range v.Faults {
		fault, err := f.fault()
		if err != nil {
			return gpu.Health{}, err
		}
		h.Faults = append(h.Faults, fault)
	}
	return h, nil
}

func (v faultV1) fault() (gpu.Fault, error) {
	quiet, err := time.ParseDuration(v.Quiet)
	if err != nil {
		return gpu.Fault{}, fmt.Errorf("fault of %s: %w", v.GPU, err)
	}
	f := gpu.Fault{
		GPU: v.GPU, UUID: v.UUID, Signal: gpu.Signal(v.Signal), XID: v.XID, Severity: v.Severity, Remedy: v.Remedy, Detail: v.Detail,
		Since: v.Since, Last: v.Last, Count: v.Count, Boot: v.Boot, Quiet: quiet,
	}
	if v.Placement != nil {
		if !v.Placement.valid() {
			return gpu.Fault{}, fmt.Errorf("fault of %s: invalid placement %+v", v.GPU, *v.Placement)
		}
		f.Placement = gpu.Placement(*v.Placement)
	}
	if v.Gone != nil {
		f.Gone = *v.Gone
	}
	if v.Over != nil {
		f.Over = *v.Over
	}
	return f, nil
}

// carryHealth is carry for health: faults correspond if their identities are equal, whatever their other fields, and old
// faults that fresh lacks are dropped.
func carryHealth(fresh, old []byte) ([]byte, error) {
	var now, before struct {
		Faults []json.RawMessage `json:"faults"`
	}
	if err := json.Unmarshal(fresh, &now); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(old, &before); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	known := map[string]json.RawMessage{}
	for _, f := range before.Faults {
		known[identity(f)] = f
	}
	faults := make([]any, len(now.Faults))
	for i, f := range now.Faults {
		into, err := fields(f)
		if err != nil {
			return nil, err
		}
		faults[i] = into
		if same, has := known[identity(f)]; has {
			from, err := fields(same)
			if err != nil {
				return nil, err
			}
			faults[i] = merge(into, from)
		}
	}
	carried, err := carry(fresh, old)
	if err != nil {
		return nil, err
	}
	whole, err := fields(carried)
	if err != nil {
		return nil, err
	}
	whole["faults"] = faults
	return json.Marshal(whole)
}

// identity returns the identity of a fault as a comparable text.
func identity(fault json.RawMessage) string {
	var v identityV1
	if json.Unmarshal(fault, &v) != nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}
