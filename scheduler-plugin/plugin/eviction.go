package plugin

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
)

// evictionKey is where the state of a simulated eviction is kept.
const evictionKey fwk.StateKey = Name + "/eviction"

// eviction is what is known about the victims on one node. Filter looks at it while evictions are
// simulated: a holder whose pods are all gone from the node holds nothing any more.
type eviction struct {
	// node is as the pod may see it, asked what the pod asks of it.
	node  *index.Node
	asked *fit.Demand
	// holders could give way; owners are those of each, by position.
	holders []victims.Holder
	owners  []owner
}

// owner is who holds the devices of a holder: pods that share claims hold them together.
type owner struct {
	pods   sets.Set[types.UID]
	claims sets.Set[types.UID]
}

// Clone returns the same eviction: nothing changes it.
func (e *eviction) Clone() fwk.StateData { return e }

// evicting returns the eviction that is simulated on the node; nil if none is.
func evicting(cs fwk.CycleState, node string) *eviction {
	data, err := cs.Read(evictionKey)
	if err != nil {
		return nil
	}
	if e, ok := data.(*eviction); ok && e.node.Name == node {
		return e
	}
	return nil
}

// judge returns the verdict on the node with the pods that are left on it.
func (e *eviction) judge(info fwk.NodeInfo) *fwk.Status {
	left := sets.New[types.UID]()
	for _, p := range info.GetPods() {
		left.Insert(p.GetPod().UID)
	}
	_, fits, err := e.choose(func(o owner) bool { return len(o.pods.Intersection(left)) > 0 })
	switch {
	case err != nil:
		return fwk.AsStatus(err)
	case !fits:
		return fwk.NewStatus(fwk.Unschedulable, noDevices)
	}
	return nil
}

// choose returns what the pod gets beside the holders that stay.
func (e *eviction) choose(stays func(owner) bool) (fit.Choice, bool, error) {
	n := e.node.Fit
	n.GPUs = slices.Clone(n.GPUs)
	for i, o := range e.owners {
		if stays(o) {
			continue
		}
		for _, held := range e.holders[i].Held {
			after, err := n.GPUs[held.GPU].Occupancy.Release(held.Use)
			if err != nil {
				return fit.Choice{}, false, fmt.Errorf("simulate the eviction from %s: %w", n.GPUs[held.GPU].Name, err)
			}
			n.GPUs[held.GPU].Occupancy = after
		}
	}
	choice, fits := fit.Choose(&n, e.asked)
	return choice, fits, nil
}

// victims returns those of the possible victims that own something of the holders.
func (e *eviction) victims(holders []int, possible []*preemption.DomainVictim) []*preemption.DomainVictim {
	var chosen []*preemption.DomainVictim
	for _, v := range possible {
		if slices.ContainsFunc(holders, func(i int) bool {
			return slices.ContainsFunc(v.Pods(), func(p fwk.PodInfo) bool { return e.owners[i].pods.Has(p.GetPod().UID) })
		}) {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// released returns the claims that end with the pods.
func (e *eviction) released(pods []*corev1.Pod) sets.Set[types.UID] {
	gone := sets.New[types.UID]()
	for _, p := range pods {
		gone.Insert(p.UID)
	}
	claims := sets.New[types.UID]()
	for _, o := range e.owners {
		if gone.IsSuperset(o.pods) {
			claims = claims.Union(o.claims)
		}
	}
	return claims
}

// evictionOn returns an eviction from the node, still without holders.
func (p *Plugin) evictionOn(node string, c *cycle) (*eviction, error) {
	published, ok := p.shared.index.Node(node)
	if !ok {
		return nil, fmt.Errorf("nothing is published on %s", node)
	}
	n := published.For(c.pod.UID)
	asked, err := c.demand.On(n)
	if err != nil {
		return nil, err
	}
	return &eviction{node: n, asked: asked}, nil
}

// newEviction returns what the possible victims hold on the node.
func (p *Plugin) newEviction(c *cycle, node string, possible []*preemption.DomainVictim, pdbs []*policyv1.PodDisruptionBudget) (*eviction, error) {
	e, err := p.evictionOn(node, c)
	if err != nil {
		return nil, err
	}
	of := map[types.UID]*preemption.DomainVictim{}
	for _, v := range possible {
		for _, pod := range v.Pods() {
			of[pod.GetPod().UID] = v
		}
	}
	violating, _ := preemption.FilterVictimsWithPDBViolation(possible, pdbs)
	protected := map[*preemption.DomainVictim]bool{}
	for _, v := range violating {
		protected[v.Victim] = true
	}
	for _, h := range e.node.Held {
		pods, ok := p.consumers(h, of)
		held, known := e.held(h)
		if !ok || !known {
			continue
		}
		i := e.owner(pods)
		e.owners[i].claims.Insert(h.UID)
		e.holders[i].Held = append(e.holders[i].Held, held)
		for pod := range pods {
			v := of[pod]
			e.holders[i].Priority = max(e.holders[i].Priority, v.Priority())
			e.holders[i].Protected = e.holders[i].Protected || protected[v]
		}
	}
	return e, nil
}

// newRelease returns what is still held of what a promise waits for.
func (p *Plugin) newRelease(c *cycle, to promise) (*eviction, error) {
	e, err := p.evictionOn(to.node, c)
	if err != nil {
		return nil, err
	}
	for _, h := range e.node.Held {
		if held, known := e.held(h); known && to.claims.Has(h.UID) {
			i := e.owner(sets.New(h.UID))
			e.holders[i].Held = append(e.holders[i].Held, held)
		}
	}
	return e, nil
}

// consumers returns the pods that must be gone before the device is released, all of the pods of victims,
// and false when somebody else keeps it.
func (p *Plugin) consumers(h index.Held, of map[types.UID]*preemption.DomainVictim) (sets.Set[types.UID], bool) {
	if h.Pod != "" || h.InFlight {
		return nil, false
	}
	claim, err := p.shared.manager.ResourceClaims().Get(h.Claim.Namespace, h.Claim.Name)
	if err != nil || claim.UID != h.UID || len(claim.Status.ReservedFor) == 0 {
		return nil, false
	}
	pods := sets.New[types.UID]()
	for _, consumer := range claim.Status.ReservedFor {
		v, ok := of[consumer.UID]
		if !ok {
			return nil, false
		}
		for _, pod := range v.Pods() {
			pods.Insert(pod.GetPod().UID)
		}
	}
	return pods, true
}

// held returns what the device takes of its GPU.
func (e *eviction) held(h index.Held) (victims.Held, bool) {
	if h.Result.Driver != e.node.Driver || h.Result.Pool != e.node.Pool {
		return victims.Held{}, false
	}
	for i, d := range e.node.Devices {
		if d.Name != h.Result.Device {
			continue
		}
		device := e.node.Fit.Devices[i]
		use := gpu.Use{Shape: device.Use.Shape, Placement: device.Use.Placement, Share: wire.Share(h.Result, device.Use.Shape, h.Result.Driver)}
		return victims.Held{GPU: device.GPU, Use: use}, true
	}
	return victims.Held{}, false
}

// owner returns the position of the owner that has one of the pods, after it was joined with others that
// have, or of a new one.
func (e *eviction) owner(pods sets.Set[types.UID]) int {
	first := -1
	for i := 0; i < len(e.owners); i++ {
		if len(e.owners[i].pods.Intersection(pods)) == 0 {
			continue
		}
		if first < 0 {
			first = i
			e.owners[i].pods = e.owners[i].pods.Union(pods)
			continue
		}
		e.join(first, i)
		i--
	}
	if first >= 0 {
		return first
	}
	e.owners = append(e.owners, owner{pods: pods, claims: sets.New[types.UID]()})
	e.holders = append(e.holders, victims.Holder{Priority: -1 << 31})
	return len(e.owners) - 1
}

// join adds the owner at the position to an earlier one.
func (e *eviction) join(into, from int) {
	e.owners[into].pods = e.owners[into].pods.Union(e.owners[from].pods)
	e.owners[into].claims = e.owners[into].claims.Union(e.owners[from].claims)
	a, b := &e.holders[into], e.holders[from]
	a.Priority, a.Protected = max(a.Priority, b.Priority), a.Protected || b.Protected
	a.Held = append(a.Held, b.Held...)
	e.owners = slices.Delete(e.owners, from, from+1)
	e.holders = slices.Delete(e.holders, from, from+1)
}
