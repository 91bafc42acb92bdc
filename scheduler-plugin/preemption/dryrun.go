package preemption

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
	"github.com/tessera-gpu/tessera/scheduler-plugin/preemption/victims"
)

// dryRunKey is the key under which a dry run is kept in the cycle state.
const dryRunKey fwk.StateKey = "TesseraDynamicResources/eviction"

// dryRun is a simulated eviction from one node. It is not changed after its construction.
type dryRun struct {
	// node is the node as the pod sees it, demand what the pod requires of it.
	node         *index.Node
	requirements *fit.Requirements
	// budget is that of the scheduling cycle.
	budget *fit.Budget
	// holders are the holders of devices that could be evicted; owners are their pods and claims, by the same position.
	holders []victims.Holder
	owners  []owner
}

// owner is a set of pods that must all be gone before their claims are released: pods that share claims.
type owner struct {
	pods   sets.Set[types.UID]
	claims sets.Set[types.UID]
}

// Clone returns the same dry run.
func (d *dryRun) Clone() fwk.StateData { return d }

// FilterDryRun returns the status of the node with the pods that the dry run has left on it: an owner whose pods are
// all gone holds nothing any more. It returns false if the cycle has no dry run on the node.
func FilterDryRun(cs fwk.CycleState, info fwk.NodeInfo) (*fwk.Status, bool) {
	data, err := cs.Read(dryRunKey)
	if err != nil {
		return nil, false
	}
	d, ok := data.(*dryRun)
	if !ok || d.node.Name != info.Node().Name {
		return nil, false
	}
	remaining := sets.New[types.UID]()
	for _, p := range info.GetPods() {
		remaining.Insert(p.GetPod().UID)
	}
	_, fits, err := d.chooseWithout(func(o owner) bool { return len(o.pods.Intersection(remaining)) == 0 })
	switch {
	case err != nil:
		return fwk.AsStatus(err), true
	case !fits:
		return fwk.NewStatus(fwk.Unschedulable, intree.ReasonCannotAllocate), true
	}
	return nil, true
}

// chooseWithout returns the devices that the pod gets when the owners for which gone returns true have released
// theirs.
func (d *dryRun) chooseWithout(gone func(owner) bool) (fit.Choice, bool, error) {
	n := d.node.Fit
	n.GPUs = slices.Clone(n.GPUs)
	for i, o := range d.owners {
		if !gone(o) {
			continue
		}
		for _, held := range d.holders[i].Held {
			after, err := n.GPUs[held.GPU].Occupancy.Release(held.Use)
			if err != nil {
				return fit.Choice{}, false, fmt.Errorf("simulate the eviction from %s: %w", n.GPUs[held.GPU].Name, err)
			}
			n.GPUs[held.GPU].Occupancy = after
		}
	}
	choice, fits := fit.Choose(&n, d.requirements, d.budget)
	return choice, fits, nil
}

// podsOf returns the possible victims that have a pod among the owners of the holders.
func (d *dryRun) podsOf(holders []int, possible []*preemption.DomainVictim) []*preemption.DomainVictim {
	var chosen []*preemption.DomainVictim
	for _, v := range possible {
		if slices.ContainsFunc(holders, func(i int) bool {
			return slices.ContainsFunc(v.Pods(), func(p fwk.PodInfo) bool { return d.owners[i].pods.Has(p.GetPod().UID) })
		}) {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// claimsReleasedBy returns the claims that are released once the pods are gone.
func (d *dryRun) claimsReleasedBy(pods []*corev1.Pod) sets.Set[types.UID] {
	gone := sets.New[types.UID]()
	for _, p := range pods {
		gone.Insert(p.UID)
	}
	claims := sets.New[types.UID]()
	for _, o := range d.owners {
		if gone.IsSuperset(o.pods) {
			claims = claims.Union(o.claims)
		}
	}
	return claims
}

// emptyDryRun returns a dry run on the node without holders.
func (p *Preemptor) emptyDryRun(cs fwk.CycleState, pod *corev1.Pod, node string) (*dryRun, error) {
	published, ok := p.config.Index.Node(node)
	if !ok {
		return nil, fmt.Errorf("node %s publishes no devices", node)
	}
	n := published.ForPod(pod.UID)
	b := p.config.BudgetOf(cs)
	demand, err := p.config.RequirementsOf(cs).OnNode(n, b)
	if err != nil {
		return nil, err
	}
	return &dryRun{node: n, requirements: demand, budget: b}, nil
}

// newDryRun returns a dry run of evicting the possible victims from the node.
//
// Holders are found from devices: a held device leads to its claim, the claim to the pods that have reserved it, and
// these to the victims they are part of. Pods that share a claim are one owner, since the claim is released only when
// all of them are gone. If pod 1 and pod 2 share claim A, and pod 2 also has claim B, then {1, 2} is one owner with the
// claims A and B (ownerOf merges them).
func (p *Preemptor) newDryRun(
	cs fwk.CycleState, pod *corev1.Pod, node string, possible []*preemption.DomainVictim, pdbs []*policyv1.PodDisruptionBudget,
) (*dryRun, error) {
	d, err := p.emptyDryRun(cs, pod, node)
	if err != nil {
		return nil, err
	}
	byPod := map[types.UID]*preemption.DomainVictim{}
	for _, v := range possible {
		for _, pod := range v.Pods() {
			byPod[pod.GetPod().UID] = v
		}
	}
	violating, _ := preemption.FilterVictimsWithPDBViolation(possible, pdbs)
	protected := map[*preemption.DomainVictim]bool{}
	for _, v := range violating {
		protected[v.Victim] = true
	}
	for _, h := range d.node.Held {
		pods, evictable := p.consumersOf(h, byPod)
		held, published := d.heldOf(h)
		if !evictable || !published {
			continue
		}
		i := d.ownerOf(pods)
		d.owners[i].claims.Insert(h.UID)
		d.holders[i].Held = append(d.holders[i].Held, held)
		for pod := range pods {
			v := byPod[pod]
			d.holders[i].Priority = max(d.holders[i].Priority, v.Priority())
			d.holders[i].Protected = d.holders[i].Protected || protected[v]
		}
	}
	return d, nil
}

// newReleaseDryRun returns a dry run whose holders are the claims that a nomination still waits for.
func (p *Preemptor) newReleaseDryRun(cs fwk.CycleState, pod *corev1.Pod, waitsFor nomination) (*dryRun, error) {
	d, err := p.emptyDryRun(cs, pod, waitsFor.node)
	if err != nil {
		return nil, err
	}
	for _, h := range d.node.Held {
		if held, published := d.heldOf(h); published && waitsFor.claims.Has(h.UID) {
			i := d.ownerOf(sets.New(h.UID))
			d.holders[i].Held = append(d.holders[i].Held, held)
		}
	}
	return d, nil
}

// consumersOf returns the pods that must be gone before the held device is released: all pods of the victims that
// have reserved the claim. It returns false if evicting victims does not release it, because it is in flight, kept
// for a pod, or reserved for a pod that is not a victim.
func (p *Preemptor) consumersOf(h index.Held, byPod map[types.UID]*preemption.DomainVictim) (sets.Set[types.UID], bool) {
	if h.Pod != "" || h.InFlight {
		return nil, false
	}
	claim, err := p.config.Claims.Get(h.Claim.Namespace, h.Claim.Name)
	if err != nil || claim.UID != h.UID || len(claim.Status.ReservedFor) == 0 {
		return nil, false
	}
	pods := sets.New[types.UID]()
	for _, consumer := range claim.Status.ReservedFor {
		v, ok := byPod[consumer.UID]
		if !ok {
			return nil, false
		}
		for _, pod := range v.Pods() {
			pods.Insert(pod.GetPod().UID)
		}
	}
	return pods, true
}

// heldOf returns which GPU the held device uses, and how. It returns false for a device that the node's pool does
// not publish.
func (d *dryRun) heldOf(h index.Held) (victims.Held, bool) {
	at, use, published := d.node.UseOf(&h)
	return victims.Held{GPU: at, Use: use}, published
}

// ownerOf returns the position of the owner of the pods. Owners that have one of the pods are merged into it.
func (d *dryRun) ownerOf(pods sets.Set[types.UID]) int {
	first := -1
	for i := 0; i < len(d.owners); i++ {
		if len(d.owners[i].pods.Intersection(pods)) == 0 {
			continue
		}
		if first < 0 {
			first = i
			d.owners[i].pods = d.owners[i].pods.Union(pods)
			continue
		}
		d.mergeOwners(first, i)
		i--
	}
	if first >= 0 {
		return first
	}
	d.owners = append(d.owners, owner{pods: pods, claims: sets.New[types.UID]()})
	d.holders = append(d.holders, victims.Holder{Priority: -1 << 31})
	return len(d.owners) - 1
}

// mergeOwners merges the owner at position from into that at the earlier position into.
func (d *dryRun) mergeOwners(into, from int) {
	d.owners[into].pods = d.owners[into].pods.Union(d.owners[from].pods)
	d.owners[into].claims = d.owners[into].claims.Union(d.owners[from].claims)
	a, b := &d.holders[into], d.holders[from]
	a.Priority, a.Protected = max(a.Priority, b.Priority), a.Protected || b.Protected
	a.Held = append(a.Held, b.Held...)
	d.owners = slices.Delete(d.owners, from, from+1)
	d.holders = slices.Delete(d.holders, from, from+1)
}
