package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/installer/action"
)

// refusedEvictions are the evictions that the API server refused, by node and UID of the pod. It is safe for concurrent use.
type refusedEvictions struct {
	mutex sync.Mutex
	nodes map[string]map[types.UID]string
}

func newRefusedEvictions() *refusedEvictions { return &refusedEvictions{nodes: map[string]map[types.UID]string{}} }

// set replaces what is known of a node.
func (r *refusedEvictions) set(node string, list []action.RefusedEviction) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.nodes, node)
	if len(list) == 0 {
		return
	}
	r.nodes[node] = map[types.UID]string{}
	for _, refusal := range list {
		r.nodes[node][refusal.UID] = refusal.Reason
	}
}

// reason returns why the eviction of a pod was refused; empty: it was not.
func (r *refusedEvictions) reason(pod types.UID) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, pods := range r.nodes {
		if reason := pods[pod]; reason != "" {
			return reason
		}
	}
	return ""
}
