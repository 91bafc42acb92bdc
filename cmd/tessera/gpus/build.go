package gpus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Build returns what the state says about GPUs.
func Build(s cluster.State) List {
	list := List{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Items: []GPU{}}
	phases := map[string]string{}
	for _, p := range s.Pods {
		phases[p.Namespace+"/"+p.Name] = string(p.Status.Phase)
	}
	holds := map[place][]hold{}
	unknown := map[string][]hold{}
	nodes := map[string]*v1alpha1.GPUNode{}
	for i := range s.GPUNodes {
		nodes[s.GPUNodes[i].Name] = &s.GPUNodes[i]
	}
	readings := s.Readings()
	for _, claim := range s.Claims {
		for _, h := range holdsOf(claim, phases) {
			r, ok := find(readings, h.result)
			if !ok {
				continue
			}
			d, err := r.Decode(h.result)
			if err != nil {
				unknown[r.Pool] = append(unknown[r.Pool], h)
				continue
			}
			h.use = d.Use
			at := place{r.Driver, r.Pool, d.GPU}
			holds[at] = append(holds[at], h)
		}
	}
	for _, r := range readings {
		for _, g := range r.GPUs {
			item := build(r, g, holds[place{r.Driver, r.Pool, g.Name}])
			item.feel(r, g, nodes[r.Node])
			list.Items = append(list.Items, item)
			list.Problems = append(list.Problems, item.Conflicts...)
		}
		list.Problems = append(list.Problems, trouble(r, unknown[r.Pool])...)
	}
	return list
}

// place is a GPU of a pool.
type place struct{ driver, pool, gpu string }

// hold is one device of an allocated claim.
type hold struct {
	result resourceapi.DeviceRequestAllocationResult
	use    gpu.Use
	holder Holder
}

func find(readings []wire.Reading, result resourceapi.DeviceRequestAllocationResult) (wire.Reading, bool) {
	i := slices.IndexFunc(readings, func(r wire.Reading) bool { return r.Driver == result.Driver && r.Pool == result.Pool })
	if i < 0 {
		return wire.Reading{}, false
	}
	return readings[i], true
}

// holdsOf returns the devices of the claim.
func holdsOf(claim resourceapi.ResourceClaim, phases map[string]string) []hold {
	if claim.Status.Allocation == nil {
		return nil
	}
	pods := []Pod{}
	for _, by := range claim.Status.ReservedFor {
		name := by.Name
		if by.Resource != "pods" {
			name = by.Resource + "/" + by.Name
		}
		pods = append(pods, Pod{Name: name, Phase: phases[claim.Namespace+"/"+name]})
	}
	var holds []hold
	for _, result := range claim.Status.Allocation.Devices.Results {
		h := hold{result: result, holder: Holder{
			Device: result.Device, Pods: pods,
			Claim: Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)},
		}}
		if result.ShareID != nil {
			h.holder.ShareID = string(*result.ShareID)
		}
		h.holder.UUID, h.holder.Condition = identity(claim, result)
		holds = append(holds, h)
	}
	return holds
}

// identity returns the UUID that the agent found, and what it says of a device that is not as it should be, its health aside.
func identity(claim resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) (uuid, condition string) {
	for _, status := range claim.Status.Devices {
		if status.Driver != result.Driver || status.Pool != result.Pool || status.Device != result.Device || !sameShare(status.ShareID, result) {
			continue
		}
		if status.Data != nil {
			var data struct {
				UUID string `json:"uuid"`
			}
			// Data of another form tells no UUID.
			_ = json.Unmarshal(status.Data.Raw, &data)
			uuid = data.UUID
		}
		for _, c := range status.Conditions {
			if c.Status == metav1.ConditionFalse && c.Type != cluster.Healthy && condition == "" {
				condition = cluster.Reason(c)
			}
		}
	}
	return uuid, condition
}

func sameShare(id *string, result resourceapi.DeviceRequestAllocationResult) bool {
	if id == nil || result.ShareID == nil {
		return id == nil && result.ShareID == nil
	}
	return *id == string(*result.ShareID)
}

// build returns one GPU with those who hold it.
func build(r wire.Reading, g wire.PublishedGPU, holds []hold) GPU {
	item := GPU{
		Node: r.Node, Driver: r.Driver, Pool: r.Pool, Name: g.Name, Index: g.GPU.Index, UUID: g.GPU.UUID,
		Product: g.GPU.Product, Architecture: g.GPU.Architecture, PCI: g.GPU.PCI, MemoryBytes: g.GPU.MemoryBytes,
		DriverVersion: r.DriverVersion, CUDAVersion: r.CUDAVersion, Offers: offers(g), Taints: taints(g),
	}
	if g.GPU.NUMA >= 0 {
		item.NUMA = &g.GPU.NUMA
	}
	slices.SortStableFunc(holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.use.Placement.Start, b.use.Placement.Start),
			cmp.Compare(a.holder.Claim.Namespace, b.holder.Claim.Namespace), cmp.Compare(a.holder.Claim.Name, b.holder.Claim.Name))
	})
	o := g.GPU.Empty(g.Shares)
	for _, h := range holds {
		holder := describe(g, h)
		if h.use.Shape == gpu.Monitor {
			item.Monitors = append(item.Monitors, holder)
			continue
		}
		next, err := o.Take(h.use)
		if err != nil {
			item.Conflicts = append(item.Conflicts, fmt.Sprintf("GPU %s of %s: device %s of claim %s/%s does not fit beside the others: %v",
				g.Name, r.Node, h.result.Device, h.holder.Claim.Namespace, h.holder.Claim.Name, err))
		}
		o = next
		item.Holders = append(item.Holders, holder)
	}
	o = o.Withhold(g.GPU.Withheld)
	item.Shape = o.Shape().String()
	item.Slices, item.Shared = partition(g, o), sharing(g, o)
	return item
}

func describe(g wire.PublishedGPU, h hold) Holder {
	holder := h.holder
	switch {
	case h.use.Shape == gpu.MIG:
		profile, _ := g.GPU.Geometry.Profile(h.use.Placement.Profile)
		holder.Profile, holder.MemoryBytes = profile.Name, profile.MemoryBytes
		holder.Start, holder.Size = &h.use.Placement.Start, &h.use.Placement.Size
	case h.use.Shape.Shared():
		holder.MemoryBytes, holder.Shares, holder.Compute = h.use.Share.MemoryBytes, h.use.Share.Shares, h.use.Share.Compute
	}
	return holder
}

// partition returns the memory slices; none for a GPU that cannot be partitioned.
func partition(g wire.PublishedGPU, o gpu.Occupancy) *Slices {
	if g.GPU.Geometry.Slices() == 0 {
		return nil
	}
	return &Slices{
		Total: g.GPU.Geometry.Slices(), Used: numbers(o.Taken()), Free: numbers(o.Free()),
		Withheld: numbers(o.Withheld() &^ o.Taken()),
	}
}

func numbers(m gpu.Mask) []int {
	list := []int{}
	for slice := range gpu.MaxSlices {
		if m.Has(slice) {
			list = append(list, slice)
		}
	}
	return list
}

// sharing returns what is shared out; nothing while the GPU has no shared shape.
func sharing(g wire.PublishedGPU, o gpu.Occupancy) *Shared {
	if !o.Shape().Shared() {
		return nil
	}
	used := o.Shared()
	return &Shared{
		MemoryBytes: g.GPU.MemoryBytes, UsedMemoryBytes: used.MemoryBytes,
		Shares: g.Shares, UsedShares: used.Shares, Compute: used.Compute,
	}
}

// offers returns the shapes that claims can have, in the model's order.
func offers(g wire.PublishedGPU) []string {
	names := []string{}
	for shape := gpu.Whole; shape <= gpu.Monitor; shape++ {
		if slices.ContainsFunc(g.Devices, func(d wire.PublishedDevice) bool { return d.Use.Shape == shape }) {
			names = append(names, shape.String())
		}
	}
	return names
}

// trouble returns what is wrong with a pool as a whole.
func trouble(r wire.Reading, unknown []hold) []string {
	var problems []string
	if !r.Complete {
		problems = append(problems, fmt.Sprintf("Pool %s: its slices are not all there yet; some GPUs may be missing here.", r.Pool))
	}
	for _, h := range unknown {
		problems = append(problems, fmt.Sprintf("Pool %s: claim %s/%s holds device %s, which is not published any more.",
			r.Pool, h.holder.Claim.Namespace, h.holder.Claim.Name, h.result.Device))
	}
	if len(r.Strange) > 0 {
		first := r.Strange[0]
		problems = append(problems, fmt.Sprintf("Pool %s: %d devices are not in Tessera's form and not shown; the first, %s: %s.",
			r.Pool, len(r.Strange), first.Name, strings.TrimSuffix(first.Err.Error(), ".")))
	}
	return problems
}
