package doctor

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// pool is a pool of devices by its driver and name.
type pool struct{ driver, name string }

// poolsOf returns the nodes of the pools: those that are published, and those that agents would publish on nodes that are known. When an agent
// is gone kubelet deletes its slices, and the claims are all that still tells of the node's devices.
func poolsOf(s cluster.State) map[pool]string {
	pools := map[pool]string{}
	expect := func(node string) {
		for _, driver := range s.Drivers {
			if node != "" {
				pools[pool{driver, wire.PoolName(node, driver)}] = node
			}
		}
	}
	for i := range s.Nodes {
		expect(s.Nodes[i].Name)
	}
	for i := range s.GPUNodes {
		expect(s.GPUNodes[i].Name)
	}
	for i := range s.Pods {
		expect(s.Pods[i].Spec.NodeName)
	}
	for _, slice := range s.Slices {
		if slice.Spec.NodeName != nil {
			pools[pool{slice.Spec.Driver, slice.Spec.Pool.Name}] = *slice.Spec.NodeName
		}
	}
	return pools
}

// nodesOf returns the nodes of which the claim has devices, each once.
func nodesOf(claim resourceapi.ResourceClaim, pools map[pool]string) []string {
	if claim.Status.Allocation == nil {
		return nil
	}
	var nodes []string
	for _, result := range claim.Status.Allocation.Devices.Results {
		if node, known := pools[pool{result.Driver, result.Pool}]; known && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// stranded returns the pods with devices of a pool of the node that is not published, and the pool's name; nil where there are none.
func (p *patient) stranded() (users []Sufferer, name string) {
	for _, claim := range p.claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			published := slices.ContainsFunc(p.readings, func(r wire.Reading) bool { return r.Driver == result.Driver && r.Pool == result.Pool })
			if published || p.pools[pool{result.Driver, result.Pool}] != p.name {
				continue
			}
			users, name = append(users, p.sufferers([]gpus.Holder{p.holder(claim, result)}, func(gpus.Holder) bool { return true })...), result.Pool
		}
	}
	return users, name
}

// unserved returns what is wrong where claims hold devices, or the node has GPUs, and no device is published.
func (p *patient) unserved() []Finding {
	if p.underway() {
		return nil
	}
	f := Finding{Severity: gpu.Critical.String(), Reason: ReasonNoSlices, Help: "look at the agent: " + p.agentLogs()}
	var name string
	if f.Pods, name = p.stranded(); len(f.Pods) > 0 {
		f.Message = fmt.Sprintf("nothing of pool %s is published, and claims hold devices of it: nobody serves their pods", name)
		f.Help += "; where it was taken away for good, end these pods"
		return []Finding{f}
	}
	if len(p.slices) > 0 || p.gpuNode == nil || p.gpuNode.Status.Hardware == nil || p.gpuNode.Status.Hardware.GPUs == 0 {
		return nil
	}
	f.Message = fmt.Sprintf("the node has %s, and no device is published", count(int(p.gpuNode.Status.Hardware.GPUs), "GPU"))
	return []Finding{f}
}

// holder is one device of the claim with the pods that use it.
func (p *patient) holder(claim resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) gpus.Holder {
	h := gpus.Holder{Device: result.Device, Claim: gpus.Claim{Namespace: claim.Namespace, Name: claim.Name}}
	for _, user := range users(claim, p.pods) {
		h.Pods = append(h.Pods, gpus.Pod{Name: user.Name, Phase: string(user.Status.Phase)})
	}
	return h
}
