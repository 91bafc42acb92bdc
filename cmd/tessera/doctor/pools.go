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

// pool identifies a pool of devices.
type pool struct{ driver, name string }

// poolNodes maps every pool to its node: those that agents publish, or would publish, on the known nodes. The latter matter because kubelet
// deletes the ResourceSlices of an agent that is gone; the node of its allocations then follows from the pool's name only.
func poolNodes(s cluster.State) map[pool]string {
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
			expect(*slice.Spec.NodeName)
		}
	}
	return pools
}

// claimNodes returns the nodes of the claim's devices, each once.
func claimNodes(claim resourceapi.ResourceClaim, pools map[pool]string) []string {
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

// podsOfUnpublishedPools returns the pods with devices of a pool of this node that is not published, and the name of such a pool.
func (n *nodeState) podsOfUnpublishedPools() (pods []AffectedPod, name string) {
	for _, claim := range n.claims {
		for _, result := range claim.Status.Allocation.Devices.Results {
			published := slices.ContainsFunc(n.readings, func(r wire.Reading) bool { return r.Has(result) })
			if published || n.pools[pool{result.Driver, result.Pool}] != n.name {
				continue
			}
			pods, name = append(pods, n.affectedPods([]gpus.Holder{n.holderOf(claim, result)}, anyHolder)...), result.Pool
		}
	}
	return pods, name
}

// unpublishedFindings returns a finding when the node has GPUs or allocations but publishes no device.
func (n *nodeState) unpublishedFindings() []Finding {
	if n.installerActive() {
		return nil
	}
	f := Finding{Severity: gpu.Critical.String(), Reason: ReasonNoResourceSlices, NextStep: "check the agent: " + n.agentLogsCommand()}
	var name string
	if f.Pods, name = n.podsOfUnpublishedPools(); len(f.Pods) > 0 {
		f.Message = fmt.Sprintf("pool %s is not published, although claims hold devices of it: their pods are not served", name)
		f.NextStep += "; if Tessera was removed from the node for good, delete these pods"
		return []Finding{f}
	}
	if len(n.slices) > 0 || n.gpuNode == nil || n.gpuNode.Status.Hardware == nil || n.gpuNode.Status.Hardware.GPUs == 0 {
		return nil
	}
	f.Message = fmt.Sprintf("the node has %s, but no device is published", quantity(int(n.gpuNode.Status.Hardware.GPUs), "GPU"))
	return []Finding{f}
}

// holderOf returns the claim as the holder of one of its devices, with its pods.
func (n *nodeState) holderOf(claim resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult) gpus.Holder {
	h := gpus.Holder{Device: result.Device, Claim: gpus.Claim{Namespace: claim.Namespace, Name: claim.Name}}
	for _, user := range consumerPods(claim, n.pods) {
		h.Pods = append(h.Pods, gpus.Pod{Name: user.Name, Phase: string(user.Status.Phase)})
	}
	return h
}
