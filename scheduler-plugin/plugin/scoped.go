package plugin

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// inTreeKey is where the in-tree plugin keeps its state of a cycle.
const inTreeKey fwk.StateKey = names.DynamicResources

// scoped is a cycle's state in which the in-tree plugin has a place of its own: what it writes there the
// cycle does not see, so that one cycle can hold its verdicts on many nodes.
type scoped struct {
	fwk.CycleState
	data fwk.StateData
}

// Read reads the in-tree plugin's state from its own place.
func (s *scoped) Read(key fwk.StateKey) (fwk.StateData, error) {
	switch {
	case key != inTreeKey:
		return s.CycleState.Read(key)
	case s.data == nil:
		return nil, fwk.ErrNotFound
	}
	return s.data, nil
}

// Write writes the in-tree plugin's state to its own place.
func (s *scoped) Write(key fwk.StateKey, data fwk.StateData) {
	if key != inTreeKey {
		s.CycleState.Write(key, data)
		return
	}
	s.data = data
}

// Delete deletes the in-tree plugin's state from its own place.
func (s *scoped) Delete(key fwk.StateKey) {
	if key != inTreeKey {
		s.CycleState.Delete(key)
		return
	}
	s.data = nil
}

// Clone returns a copy that shares what the in-tree plugin shares among copies.
func (s *scoped) Clone() fwk.CycleState {
	clone := &scoped{CycleState: s.CycleState.Clone()}
	if s.data != nil {
		clone.data = s.data.Clone()
	}
	return clone
}

// alone is a scoped state that does not know of the pod group: what is only tried leaves no mark there.
type alone struct {
	*scoped
}

// GetPodGroupSchedulingCycle returns that there is no group.
func (alone) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState { return nil }
