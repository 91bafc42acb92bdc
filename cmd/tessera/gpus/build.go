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

// Build returns the GPUs of the state's ResourceSlices with the claims that hold their devices.
func Build(s cluster.State) List {
	list := List{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Items: []GPU{}}
	phases := map[string]string{}
	for _, p := range s.Pods {
		phases[p.Namespace+"/"+p.Name] = string(p.Status.Phase)
	}
	holds := map[gpuKey][]hold{}
	unknown := map[string][]hold{}
	nodes := map[string]*v1alpha1.GPUNode{}
	for i := range s.GPUNodes {
		nodes[s.GPUNodes[i].Name] = &s.GPUNodes[i]
	}
	readings := s.Readings()
	for _, claim := range s.Claims {
		for _, h := range claimHolds(claim, phases) {
			r, ok := readingOf(readings, h.result)
			if !ok {
				continue
			}
			d, err := r.Decode(h.result)
			if err != nil {
				unknown[r.Pool] = append(unknown[r.Pool], h)
				continue
			}
			h.use = d.Use
			at := gpuKey{r.Driver, r.Pool, d.GPU}
			holds[at] = append(holds[at], h)
		}
	}
	for _, r := range readings {
		for _, g := range r.GPUs {
			item := buildGPU(r, g, holds[gpuKey{r.Driver, r.Pool, g.Name}])
			item.addHealth(r, g, nodes[r.Node])
			item.DriverVersion = driverVersion(r.DriverVersion, nodes[r.Node])
			list.Items = append(list.Items, item)
			list.Problems = append(list.Problems, item.Conflicts...)
		}
		list.Problems = append(list.Problems, poolProblems(r, unknown[r.Pool])...)
	}
	return list
}

// gpuKey identifies a GPU.
type gpuKey struct{ driver, pool, gpu string }

// hold is one device of an allocated claim.
type hold struct {
	result resourceapi.DeviceRequestAllocationResult
	use    gpu.Use
	holder Holder
}

// readingOf returns the pool of an allocated device; false when the pool is not published.
func readingOf(readings []wire.Reading, result resourceapi.DeviceRequestAllocationResult) (wire.Reading, bool) {
	i := slices.IndexFunc(readings, func(r wire.Reading) bool { return r.Has(result) })
	if i < 0 {
		return wire.Reading{}, false
	}
	return readings[i], true
}

// claimHolds returns the allocated devices of the claim.
func claimHolds(claim resourceapi.ResourceClaim, phases map[string]string) []hold {
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
		h.holder.UUID, h.holder.Condition = preparedState(claim, result)
		holds = append(holds, h)
	}
	return holds
}

// preparedState returns the UUID of the prepared device and the first of its conditions that is False, that of health aside. Both are the agent's, from the
// claim's status.devices.
func preparedState(claim resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) (uuid, condition string) {
	for _, status := range claim.Status.Devices {
		if status.Driver != result.Driver || status.Pool != result.Pool || status.Device != result.Device || !sameShare(status.ShareID, result) {
			continue
		}
		if status.Data != nil {
			var data struct {
				UUID string `json:"uuid"`
			}
			// Data in another form has no UUID.
			_ = json.Unmarshal(status.Data.Raw, &data)
			uuid = data.UUID
		}
		for _, c := range status.Conditions {
			if c.Status == metav1.ConditionFalse && c.Type != cluster.Healthy && condition == "" {
				condition = cluster.ConditionText(c)
			}
		}
	}
	return uuid, condition
}

// sameShare reports whether a device status with the share ID belongs to the allocated device.
func sameShare(id *string, result resourceapi.DeviceRequestAllocationResult) bool {
	if id == nil || result.ShareID == nil {
		return id == nil && result.ShareID == nil
	}
	return *id == string(*result.ShareID)
}

// buildGPU returns one GPU with its holders. An allocation that does not fit is reported as a conflict and listed as a holder all the same.
func buildGPU(r wire.Reading, g wire.PublishedGPU, holds []hold) GPU {
	item := GPU{
		Node: r.Node, Driver: r.Driver, Pool: r.Pool, Name: g.Name, Index: g.GPU.Index, UUID: g.GPU.UUID,
		Product: g.GPU.Product, Architecture: g.GPU.Architecture, PCI: g.GPU.PCI, MemoryBytes: g.GPU.MemoryBytes,
		CUDAVersion: r.CUDAVersion, Offers: offeredShapes(g), Taints: collectTaints(g),
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
		holder := holderDetails(g, h)
		if h.use.Shape == gpu.Monitor {
			item.Monitors = append(item.Monitors, holder)
			continue
		}
		next, err := o.Take(h.use)
		if err != nil {
			item.Conflicts = append(item.Conflicts, fmt.Sprintf("GPU %s of %s: device %s of claim %s/%s overlaps with other allocations: %v",
				g.Name, r.Node, h.result.Device, h.holder.Claim.Namespace, h.holder.Claim.Name, err))
		}
		o = next
		item.Holders = append(item.Holders, holder)
	}
	o = o.Withhold(g.GPU.Withheld)
	item.Shape = o.Shape().String()
	item.MemorySlices, item.Shared = memorySlices(g, o), sharedUse(g, o)
	return item
}

// holderDetails returns the holder with its MIG profile or its share.
func holderDetails(g wire.PublishedGPU, h hold) Holder {
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

// memorySlices returns the memory slices; nil for a GPU without MIG.
func memorySlices(g wire.PublishedGPU, o gpu.Occupancy) *MemorySlices {
	if g.GPU.Geometry.Slices() == 0 {
		return nil
	}
	return &MemorySlices{
		Total: g.GPU.Geometry.Slices(), Used: sliceNumbers(o.Taken()), Free: sliceNumbers(o.Free()),
		Withheld: sliceNumbers(o.Withheld() &^ o.Taken()),
	}
}

// sliceNumbers returns the numbers of the memory slices in the mask.
func sliceNumbers(m gpu.Mask) []int {
	list := []int{}
	for slice := range gpu.MaxSlices {
		if m.Has(slice) {
			list = append(list, slice)
		}
	}
	return list
}

// sharedUse returns the use of a GPU in a shared shape, nil in any other shape.
func sharedUse(g wire.PublishedGPU, o gpu.Occupancy) *Shared {
	if !o.Shape().Shared() {
		return nil
	}
	used := o.Shared()
	return &Shared{
		MemoryBytes: g.GPU.Shareable(), UsedMemoryBytes: used.MemoryBytes,
		Shares: g.Shares, UsedShares: used.Shares, Compute: used.Compute, MemoryEnforced: g.MemoryEnforced[o.Shape()],
	}
}

// offeredShapes returns the shapes that the GPU's devices have, in the order of gpu.Shape.
func offeredShapes(g wire.PublishedGPU) []string {
	names := []string{}
	for shape := gpu.Whole; shape <= gpu.Monitor; shape++ {
		if slices.ContainsFunc(g.Devices, func(d wire.PublishedDevice) bool { return d.Use.Shape == shape }) {
			names = append(names, shape.String())
		}
	}
	return names
}

// poolProblems returns the problems of a pool: a refused pool, missing ResourceSlices, allocations of unpublished devices, devices that do not decode.
func poolProblems(r wire.Reading, unknown []hold) []string {
	var problems []string
	if r.Refused != nil {
		return []string{fmt.Sprintf("Node %s: %v; nothing of it is listed.", r.Node, r.Refused)}
	}
	if !r.Complete {
		problems = append(problems, fmt.Sprintf("Pool %s: ResourceSlices are missing; the list may lack GPUs.", r.Pool))
	}
	for _, h := range unknown {
		problems = append(problems, fmt.Sprintf("Pool %s: claim %s/%s holds device %s, which is no longer published.",
			r.Pool, h.holder.Claim.Namespace, h.holder.Claim.Name, h.result.Device))
	}
	if len(r.Invalid) > 0 {
		first := r.Invalid[0]
		problems = append(problems, fmt.Sprintf("Pool %s: %d devices cannot be decoded and were skipped; the first is %s: %s.",
			r.Pool, len(r.Invalid), first.Name, strings.TrimSuffix(first.Err.Error(), ".")))
	}
	return problems
}
