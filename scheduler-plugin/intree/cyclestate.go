package intree

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// StateKey is where the in-tree plugin keeps its state of a cycle.
const StateKey fwk.StateKey = names.DynamicResources

// ScopedState is a cycle state with separate data of the in-tree plugin, so that one cycle can hold its data for many
// nodes.
type ScopedState struct {
	fwk.CycleState
	Data fwk.StateData
}

// Read reads the in-tree plugin's state from its own place.
func (s *ScopedState) Read(key fwk.StateKey) (fwk.StateData, error) {
	switch {
	case key != StateKey:
		return s.CycleState.Read(key)
	case s.Data == nil:
		return nil, fwk.ErrNotFound
	}
	return s.Data, nil
}

// Write writes the in-tree plugin's state to its own place.
func (s *ScopedState) Write(key fwk.StateKey, data fwk.StateData) {
	if key != StateKey {
		s.CycleState.Write(key, data)
		return
	}
	s.Data = data
}

// Delete deletes the in-tree plugin's state from its own place.
func (s *ScopedState) Delete(key fwk.StateKey) {
	if key != StateKey {
		s.CycleState.Delete(key)
		return
	}
	s.Data = nil
}

// Clone returns a copy that shares what the in-tree plugin shares among copies.
func (s *ScopedState) Clone() fwk.CycleState {
	clone := &ScopedState{CycleState: s.CycleState.Clone()}
	if s.Data != nil {
		clone.Data = s.Data.Clone()
	}
	return clone
}

// WithoutPodGroup is a scoped state without the pod group, so that a simulation does not write to the state of the group.
type WithoutPodGroup struct {
	*ScopedState
}

// GetPodGroupSchedulingCycle returns that there is no group.
func (WithoutPodGroup) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState { return nil }
