package intree

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// State is what is allocated, as the in-tree allocator's types. It is immutable.
type State struct {
	exclusive sets.Set[structured.DeviceID]
	shares    sets.Set[structured.SharedDeviceID]
	consumed  structured.ConsumedCapacityCollection
}

// NewState returns the state with these devices allocated. Admin access allocates nothing, and a share allocates what
// it consumes (allocateddevices.go of the in-tree plugin).
func NewState(held []index.Held) *State {
	s := &State{
		exclusive: sets.New[structured.DeviceID](),
		shares:    sets.New[structured.SharedDeviceID](),
		consumed:  structured.NewConsumedCapacityCollection(),
	}
	for i := range held {
		r := &held[i].Result
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			s.exclusive.Insert(id)
			continue
		}
		s.shares.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		if r.ConsumedCapacity != nil {
			s.consumed.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return s
}

func (s *State) allocated() *structured.AllocatedState {
	if s == nil {
		s = NewState(nil)
	}
	return &structured.AllocatedState{
		AllocatedDevices:         s.exclusive,
		AllocatedSharedDeviceIDs: s.shares,
		AggregatedCapacity:       s.consumed,
	}
}

func (s *State) devices() sets.Set[structured.DeviceID] {
	if s == nil {
		return sets.New[structured.DeviceID]()
	}
	all := s.exclusive.Clone()
	for share := range s.shares {
		all.Insert(share.GetDeviceID())
	}
	return all
}
