package index_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// model is a reference index that stores objects only and computes every answer from scratch.
type model struct {
	slices            map[string]*resourceapi.ResourceSlice
	observed, assumed map[types.NamespacedName]*resourceapi.ResourceClaim
	pending           map[types.UID]*resourceapi.ResourceClaim
	deleted           map[types.UID]bool
	promises          map[types.UID]promised
}

type promised struct {
	node    string
	devices []resourceapi.DeviceRequestAllocationResult
}

func newModel() *model {
	return &model{
		map[string]*resourceapi.ResourceSlice{},
		map[types.NamespacedName]*resourceapi.ResourceClaim{}, map[types.NamespacedName]*resourceapi.ResourceClaim{},
		map[types.UID]*resourceapi.ResourceClaim{}, map[types.UID]bool{}, map[types.UID]promised{},
	}
}

func version(o metav1.Object) int {
	v, err := strconv.Atoi(o.GetResourceVersion())
	if err != nil {
		return -1
	}
	return v
}

func nameOf(c *resourceapi.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

func (m *model) setSlice(s *resourceapi.ResourceSlice) {
	if known := m.slices[s.Name]; known == nil || version(s) > version(known) || version(s) == version(known) && !reflect.DeepEqual(s, known) {
		m.slices[s.Name] = s
	}
}

func (m *model) deleteSlice(s *resourceapi.ResourceSlice) {
	if known := m.slices[s.Name]; known != nil && known.UID == s.UID {
		delete(m.slices, s.Name)
	}
}

// latest returns the version that was written last under the name.
func (m *model) latest(name types.NamespacedName) *resourceapi.ResourceClaim {
	return cmp.Or(m.assumed[name], m.observed[name])
}

// displace removes a claim with the same name and another UID, and returns false if that claim is newer.
func (m *model) displace(c *resourceapi.ResourceClaim) bool {
	known := m.latest(nameOf(c))
	if known == nil || known.UID == c.UID {
		return true
	}
	if version(c) < version(known) {
		return false
	}
	m.deleteClaim(known)
	return true
}

func (m *model) setClaim(c *resourceapi.ResourceClaim) {
	delete(m.deleted, c.UID)
	if !m.displace(c) {
		return
	}
	name := nameOf(c)
	if known := m.observed[name]; known == nil || version(c) >= version(known) {
		m.observed[name] = c
	}
	o, a := m.observed[name], m.assumed[name]
	if a == nil || version(o) < version(a) {
		return
	}
	if less := o.Status.Allocation == nil && a.Status.Allocation != nil; version(o) > version(a) || !less {
		delete(m.assumed, name)
	}
}

func (m *model) deleteClaim(c *resourceapi.ResourceClaim) {
	m.deleted[c.UID] = true
	if known := m.latest(nameOf(c)); known != nil && known.UID == c.UID {
		delete(m.observed, nameOf(c))
		delete(m.assumed, nameOf(c))
	}
}

func (m *model) assume(c *resourceapi.ResourceClaim) {
	if m.deleted[c.UID] || !m.displace(c) {
		return
	}
	if known := m.latest(nameOf(c)); known == nil || version(c) >= version(known) {
		m.assumed[nameOf(c)] = c
	}
}

func (m *model) pend(c *resourceapi.ResourceClaim) {
	if m.pending[c.UID] == nil {
		m.pending[c.UID] = c
	}
}

// held returns all devices that claims hold: those that are written, and those in flight that no claim holds in
// writing.
func (m *model) held() []index.Held {
	var all []index.Held
	for name := range m.names() {
		for _, h := range holds(m.latest(name)) {
			if !slices.ContainsFunc(all, func(o index.Held) bool { return o.UID == h.UID && device(o) == device(h) }) {
				all = append(all, h)
			}
		}
	}
	for _, c := range m.pending {
		for _, h := range holds(c) {
			h.InFlight = true
			same := func(o index.Held) bool { return device(o) == device(h) && (o.UID == h.UID || !o.InFlight) }
			if !slices.ContainsFunc(all, same) {
				all = append(all, h)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b index.Held) int {
		return cmp.Or(cmp.Compare(a.Claim.String(), b.Claim.String()), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// holds returns the devices in the allocation of the object.
func holds(c *resourceapi.ResourceClaim) []index.Held {
	var all []index.Held
	if c == nil || c.Status.Allocation == nil {
		return nil
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.AdminAccess == nil || !*r.AdminAccess {
			all = append(all, index.Held{Claim: nameOf(c), UID: c.UID, Result: r})
		}
	}
	return all
}

func (m *model) names() map[types.NamespacedName]bool {
	all := map[types.NamespacedName]bool{}
	for name := range m.observed {
		all[name] = true
	}
	for name := range m.assumed {
		all[name] = true
	}
	return all
}

// device returns an identifier of the device or share.
func device(h index.Held) string {
	share := types.UID("")
	if h.Result.ShareID != nil {
		share = *h.Result.ShareID
	}
	return fmt.Sprintf("%s/%s/%s/%s", h.Result.Driver, h.Result.Pool, h.Result.Device, share)
}

// pools returns the ResourceSlices of the newest generation by driver and pool; those of our driver by node as well.
func (m *model) pools() map[string][]*resourceapi.ResourceSlice {
	newest := map[string]int64{}
	key := func(s *resourceapi.ResourceSlice) string {
		if s.Spec.Driver == driver {
			return poolKey(driver, s.Spec.Pool.Name, *s.Spec.NodeName)
		}
		return poolKey(s.Spec.Driver, s.Spec.Pool.Name, "")
	}
	for _, s := range m.slices {
		newest[key(s)] = max(newest[key(s)], s.Spec.Pool.Generation)
	}
	pools := map[string][]*resourceapi.ResourceSlice{}
	for _, name := range slices.Sorted(maps.Keys(m.slices)) {
		if s := m.slices[name]; s.Spec.Pool.Generation == newest[key(s)] {
			pools[key(s)] = append(pools[key(s)], s)
		}
	}
	return pools
}

// poolKey identifies a pool.
func poolKey(driver, pool, node string) string { return driver + "/" + pool + "/" + node }

// heldKey identifies the pool of a held device.
func heldKey(h index.Held) string {
	if h.Result.Driver == driver {
		return poolKey(driver, h.Result.Pool, strings.TrimSuffix(h.Result.Pool, "-"+driver))
	}
	return poolKey(h.Result.Driver, h.Result.Pool, "")
}

// onNode returns the node of a pool, empty for none.
func onNode(list []*resourceapi.ResourceSlice) string {
	names := map[string]bool{}
	for _, s := range list {
		if s.Spec.NodeName == nil {
			return ""
		}
		names[*s.Spec.NodeName] = true
	}
	if len(names) != 1 {
		return ""
	}
	return *list[0].Spec.NodeName
}

// sight is the compared part of a node.
type sight struct {
	Slices, Devices []string
	Foreign         bool
	Driver, Pool    string
	Uses            []fit.Device
	GPUs            []gpuSight
	Held            []index.Held
	Unclear         bool
}

type gpuSight struct {
	Name, Clique    string
	NUMA            int
	Shape           gpu.Shape
	Taken, Withheld gpu.Mask
	Holders         int
	Placements      []gpu.Placement
	Shared          gpu.Share
}

func sightOf(n *index.Node) *sight {
	s := &sight{Foreign: n.Foreign, Driver: n.Driver, Pool: n.Pool, Uses: n.Fit.Devices, Held: n.Held, Unclear: n.DelegateReason != nil}
	for _, slice := range n.Slices {
		s.Slices = append(s.Slices, fmt.Sprintf("%s %p", slice.Name, slice))
	}
	for _, d := range n.Devices {
		s.Devices = append(s.Devices, fmt.Sprintf("%s %p", d.Name, d))
	}
	for _, g := range n.Fit.GPUs {
		s.GPUs = append(s.GPUs, gpuSightOf(g.Name, g.Clique, g.NUMA, g.Occupancy))
	}
	return s
}

func gpuSightOf(name, clique string, numa int, o gpu.Occupancy) gpuSight {
	return gpuSight{name, clique, numa, o.Shape(), o.Taken(), o.Withheld(), o.Holders(), o.Placements(), o.Shared()}
}

// node returns the expected state of the node as the pod sees it, nil if nothing is published on it.
func (m *model) node(name string, pod types.UID) *sight {
	s := &sight{}
	pools := m.pools()
	var own []*resourceapi.ResourceSlice
	local := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(pools)) {
		list := pools[key]
		if onNode(list) != name {
			continue
		}
		local[key] = true
		if list[0].Spec.Driver == driver && list[0].Spec.Pool.Name != name+"-"+driver {
			s.Unclear = true
			continue
		}
		for _, slice := range list {
			s.Slices = append(s.Slices, fmt.Sprintf("%s %p", slice.Name, slice))
		}
		switch {
		case list[0].Spec.Driver != driver:
			s.Foreign = true
		default:
			own = list
			s.Driver, s.Pool = driver, list[0].Spec.Pool.Name
		}
	}
	if len(local) == 0 {
		return nil
	}
	for _, h := range m.held() {
		if local[heldKey(h)] {
			s.Held = append(s.Held, h)
		}
	}
	m.fill(s, own, m.promisedOn(name, pod))
	return s
}

func (m *model) promisedOn(node string, but types.UID) []index.Held {
	var all []index.Held
	for _, pod := range slices.Sorted(maps.Keys(m.promises)) {
		if p := m.promises[pod]; p.node == node && pod != but {
			for _, r := range p.devices {
				all = append(all, index.Held{Pod: pod, Result: r})
			}
		}
	}
	return all
}

// fill adds the GPUs and their occupancy.
func (m *model) fill(s *sight, own []*resourceapi.ResourceSlice, promises []index.Held) {
	var reading wire.Reading
	readable := len(own) > 0 && int64(len(own)) == own[0].Spec.Pool.ResourceSliceCount
	if len(own) > 0 && !readable {
		s.Unclear = true
	}
	if readable {
		var values []resourceapi.ResourceSlice
		for _, slice := range own {
			values = append(values, *slice)
		}
		reading = wire.Read(values)[0]
		s.Unclear = s.Unclear || len(reading.Invalid) > 0
	}
	occupied := map[string]gpu.Occupancy{}
	position := map[string]int{}
	for i, g := range reading.GPUs {
		occupied[g.Name] = g.GPU.Empty(g.Shares).Withhold(g.GPU.Withheld)
		position[g.Name] = i
	}
	for _, slice := range own {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if g, found, err := reading.Find(d.Name); err == nil {
				s.Devices = append(s.Devices, fmt.Sprintf("%s %p", d.Name, d))
				s.Uses = append(s.Uses, fit.Device{GPU: position[g.Name], Use: found.Use})
			}
		}
	}
	lost := map[string]gpu.Mask{}
	take := func(h index.Held) bool { return take(reading, occupied, lost, s.Held, h) }
	for _, h := range s.Held {
		if readable && h.Result.Driver == driver && h.Result.Pool == s.Pool && !take(h) {
			s.Unclear = true
		}
	}
	for _, h := range promises {
		same := func(other index.Held) bool { return device(other) == device(h) }
		free := !slices.ContainsFunc(s.Held, same)
		if readable && h.Result.Driver == driver && h.Result.Pool == s.Pool {
			free = take(h)
		}
		if free {
			s.Held = append(s.Held, h)
		}
	}
	for _, g := range reading.GPUs {
		s.GPUs = append(s.GPUs, gpuSightOf(g.Name, g.GPU.Clique, g.GPU.NUMA, occupied[g.Name].Withhold(lost[g.Name])))
	}
}

// take takes a device of our driver, and reports whether that is possible.
func take(r wire.Reading, occupied map[string]gpu.Occupancy, lost map[string]gpu.Mask, held []index.Held, h index.Held) bool {
	d, err := r.Decode(h.Result)
	if err != nil {
		return false
	}
	after, err := occupied[d.GPU].Take(d.Use)
	ok := err == nil
	if d.Shape.Shared() && h.Result.ShareID == nil {
		ok = false
	}
	if d.Shape.Shared() || d.Shape == gpu.Monitor {
		for _, other := range held {
			if device(other) == device(h) && (other.UID != h.UID || other.Pod != h.Pod) {
				// The first holder in order has it.
				first := slices.IndexFunc(held, func(o index.Held) bool { return device(o) == device(h) })
				ok = ok && held[first].UID == h.UID && held[first].Pod == h.Pod
			}
		}
	}
	if ok {
		occupied[d.GPU] = after
		return true
	}
	g, _, _ := r.Find(h.Result.Device)
	if cost, err := g.GPU.Geometry.Cost(d.Use); err == nil {
		lost[d.GPU] |= cost.Slices
	}
	return false
}
