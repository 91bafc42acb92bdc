package drain

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/installer/action"
)

// refusedEvictions are the evictions that the API server refused, with their reasons. It is safe for concurrent use.
type refusedEvictions struct {
	mutex sync.Mutex
	// keys has the reasons by the key of a node or GPU and the UID of the pod.
	keys map[string]map[types.UID]string
}

func newRefusedEvictions() *refusedEvictions {
	return &refusedEvictions{keys: map[string]map[types.UID]string{}}
}

// set replaces the refused evictions of a key.
func (r *refusedEvictions) set(key string, list []action.RefusedEviction) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.keys, key)
	if len(list) == 0 {
		return
	}
	r.keys[key] = map[types.UID]string{}
	for _, refusal := range list {
		r.keys[key][refusal.UID] = refusal.Reason
	}
}

// reason returns why the eviction of a pod was refused, or an empty text.
func (r *refusedEvictions) reason(pod types.UID) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, pods := range r.keys {
		if reason := pods[pod]; reason != "" {
			return reason
		}
	}
	return ""
}
