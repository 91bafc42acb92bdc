package lifecycle

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// syncDiscovery is the discovery on every node: it creates the GPUNode and reports the hardware in its status.
func (s *simulator) syncDiscovery(ctx context.Context, now *snapshot) error {
	for _, node := range now.nodes.Items {
		m, known := s.machineOf(node.Name)
		pod := findOperandPod(now, node.Name, "tessera-discovery")
		if !known || m.undiscovered || !isPodReady(pod) {
			continue
		}
		at := slices.IndexFunc(now.gpunodes.Items, func(g v1alpha1.GPUNode) bool { return g.Name == node.Name })
		if at < 0 {
			if err := s.createGPUNode(ctx, pod, node.Name); err != nil {
				return err
			}
			continue
		}
		want := v1alpha1.HardwareStatus{
			BootID: node.Status.NodeInfo.BootID, GPUs: max(1, m.gpus), PCI: []string{"2330"}, Kernel: m.kernel, OS: m.os, Architecture: "amd64",
			HostDriver: m.hostDriver, LoadedDriver: s.loadedDriver(now, m), Runtime: "containerd://2.2.1", CDI: true,
		}
		if have := now.gpunodes.Items[at].Status.Hardware; have != nil && equality.Semantic.DeepEqual(*have, want) {
			continue
		}
		if err := s.applyStatus(ctx, node.Name, "tessera-discovery", map[string]any{"hardware": want}); err != nil {
			return err
		}
	}
	return nil
}

// createGPUNode creates the GPUNode of a node unless the discovery's pod is deleted. The installer deletes the pod
// before the GPUNode; a discovery that outlived its pod would bring the GPUNode back.
func (s *simulator) createGPUNode(ctx context.Context, pod *corev1.Pod, node string) error {
	live, err := s.getLivePod(ctx, client.ObjectKeyFromObject(pod), pod.UID)
	if err != nil || live == nil {
		return err
	}
	return client.IgnoreAlreadyExists(s.admin.Create(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}))
}

// isDiscovered reports whether the hardware of a node is in its GPUNode, or never will be.
func (s *simulator) isDiscovered(now *snapshot, node string) bool {
	m, known := s.machineOf(node)
	return !known || m.undiscovered || slices.ContainsFunc(now.gpunodes.Items, func(g v1alpha1.GPUNode) bool { return g.Name == node && g.Status.Hardware != nil })
}

// syncAgents is the agent on every node: it acknowledges maintenance, carries out remediations, and reports both in
// the status of the GPUNode.
func (s *simulator) syncAgents(ctx context.Context, now *snapshot) error {
	for _, g := range now.gpunodes.Items {
		pod := findOperandPod(now, g.Name, "tessera-node")
		if !isPodReady(pod) {
			continue
		}
		m, _ := s.machineOf(g.Name)
		want := v1alpha1.AgentStatus{
			Version: "v1", PodUID: string(pod.UID), BootID: m.bootID(), Ready: true, DriverVersion: s.loadedDriver(now, m),
			GPUs: max(1, m.gpus), Product: "NVIDIA H100 80GB HBM3", Memory: 80 << 30, Architecture: "Hopper", ComputeCapability: "9.0",
		}
		if maintenance := g.Spec.Maintenance; maintenance != nil {
			want.Maintenance, want.PreparedClaims = maintenance.ID, new(countPrepared(now, g.Name))
		}
		var err error
		if want.Faults, want.Remediations, err = s.syncHealth(ctx, now, &g, m); err != nil {
			return err
		}
		if g.Status.Agent != nil && equality.Semantic.DeepEqual(*g.Status.Agent, want) {
			continue
		}
		if err := s.applyStatus(ctx, g.Name, "tessera-node", map[string]any{"agent": want}); err != nil {
			return err
		}
	}
	return nil
}

// machineOf returns the hardware of a node.
func (s *simulator) machineOf(node string) (m machine, known bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	m, known = s.machines[node]
	return m, known
}

// loadedDriver returns the version of the driver in the kernel: that of the driver container that loaded it in this boot, else the host's. Modules outlive
// their container while claims are prepared: modules in use cannot be removed (delete_module(2), EWOULDBLOCK).
func (s *simulator) loadedDriver(now *snapshot, m machine) string {
	pod := findOperandPod(now, m.name, "tessera-driver")
	s.mutex.Lock()
	defer s.mutex.Unlock()
	loaded, exists := s.modules[m.name]
	if !exists || loaded.boot != m.boot || !isPodReady(pod) && countPrepared(now, m.name) == 0 {
		delete(s.modules, m.name)
		return m.hostDriver
	}
	return loaded.version
}

// countPrepared returns the number of devices of a node that claims hold without admin access.
func countPrepared(now *snapshot, node string) int32 {
	var n int32
	for _, claim := range now.claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Pool == node+"-"+v1alpha1.DriverName && (r.AdminAccess == nil || !*r.AdminAccess) {
				n++
			}
		}
	}
	return n
}

// applyStatus writes a part of a GPUNode's status with server-side apply, as the field manager that owns the part.
func (s *simulator) applyStatus(ctx context.Context, name, manager string, status map[string]any) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "GPUNode", "metadata": map[string]any{"name": name}, "status": status,
	})
	if err != nil {
		return err
	}
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return s.admin.Status().Patch(ctx, g, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(manager), client.ForceOwnership)
}
