package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/drain"
)

// member is a GPU node with what policies want of it. Its objects belong to the cache.
type member struct {
	gpunode    *v1alpha1.GPUNode
	node       *corev1.Node
	assignment catalog.Assignment
	// wanted is the driver that the node is to have; nil where none is wanted, and as long as the hardware is unknown.
	wanted *v1alpha1.DesiredDriver
	// pods is the number of pods that a change of the node would evict.
	pods int32
}

// readMembers reads the nodes and what policies want of them.
func (r *Reconciler) readMembers(ctx context.Context, p *pass) error {
	gpunodes, nodes := &v1alpha1.GPUNodeList{}, &corev1.NodeList{}
	c := r.Cluster.Client
	if err := errors.Join(c.List(ctx, gpunodes, client.UnsafeDisableDeepCopy), c.List(ctx, nodes, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	byName := make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		node := &nodes.Items[i]
		byName[node.Name] = node
		p.placed[node.Labels[v1alpha1.LabelDriver]] = true
		if pool := node.Labels[v1alpha1.LabelAgent]; pool != "" {
			p.input.Agents = append(p.input.Agents, pool)
		}
	}
	slices.Sort(p.input.Agents)
	p.input.Agents = slices.Compact(p.input.Agents)
	p.input.ServiceMonitors = r.ServiceMonitors
	slices.SortFunc(gpunodes.Items, func(a, b v1alpha1.GPUNode) int { return strings.Compare(a.Name, b.Name) })
	for i := range gpunodes.Items {
		gpunode := &gpunodes.Items[i]
		if node := byName[gpunode.Name]; node != nil {
			p.members = append(p.members, member{gpunode: gpunode, node: node, assignment: p.Assign(node).WithHardware(gpunode.Status.Hardware)})
		}
	}
	return r.assignDrivers(ctx, p)
}

// assignDrivers sets the driver that each node is to have, and the number of pods that a change would evict. A driver that cannot be rendered is a fault.
func (r *Reconciler) assignDrivers(ctx context.Context, p *pass) error {
	reported := map[string]bool{}
	for i := range p.members {
		m := &p.members[i]
		found, ok := p.DriverFor(m.assignment, m.gpunode.Status.Hardware)
		if ok {
			p.drivers[found.Key] = found
		}
		switch {
		case !m.assignment.Managed() || m.assignment.Conflict != "":
			continue
		case ok && found.Err == nil:
			m.wanted = &found.Desired
		case ok:
			if text := found.Err.Error(); !reported[text] {
				reported[text] = true
				p.faults = append(p.faults, fault{"DriverUnknown", text})
			}
		}
		if _, changes := m.change(); !changes {
			continue
		}
		users, err := drain.PoolUsers(ctx, r.Cluster, wire.PoolName(m.node.Name, m.assignment.DRADriver))
		if err != nil {
			return err
		}
		m.pods = int32(len(users.Pods)) //nolint:gosec // a node has thousands at most
	}
	return nil
}

// current returns the digest of the driver that the node has been granted.
func (m member) current() string {
	if d := m.gpunode.Spec.Driver; d != nil {
		return d.Digest
	}
	return ""
}

// change returns the digest of the driver that the node is to have, and whether the node must change for it, for its MIG mode or to restart it.
func (m member) change() (wanted string, changes bool) {
	wanted = m.current()
	if m.wanted != nil {
		wanted = m.wanted.Digest
	}
	return wanted, wanted != m.current() || m.modeChanges() || m.restartWanted()
}

// restartWanted reports whether the driver's pod cannot start while the GPUs are in use, and its replacement after a drain has not been granted.
func (m member) restartWanted() bool {
	return m.gpunode.Status.DriverRestart != "" && !m.restarting()
}

// restarting reports whether the replacement of the driver's pod has been granted and is not complete.
func (m member) restarting() bool {
	return m.gpunode.Status.DriverRestart != "" && m.gpunode.Spec.DriverRestart == m.gpunode.Status.DriverRestart
}

// modeChanges reports whether the node is to have another MIG mode than it has been granted.
func (m member) modeChanges() bool {
	return m.assignment.MIGMode != "" && m.assignment.MIGMode != m.gpunode.Spec.MIGMode
}

// modeChanging reports whether the node has been granted a MIG mode that its GPUs do not have yet.
func (m member) modeChanging() bool {
	return m.gpunode.Spec.MIGMode.Differs(m.gpunode.Status.Agent)
}
