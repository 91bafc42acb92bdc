package nodestate

import (
	"context"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/wire"
)

// Pools reads the devices that agents publish and keeps them, so that a reconcile of a node with faults needs no request: ResourceSlices are not in the
// cache, because those of a large cluster would not fit in the installer's memory. It is safe for concurrent use.
type Pools struct {
	live  client.Reader
	mutex sync.Mutex
	nodes map[string]publication
}

// publication is a complete pool, with the boot and the pod of the agent that published it.
type publication struct {
	agent string
	pool  wire.Reading
}

// NewPools returns Pools that read from the API server.
func NewPools(live client.Reader) *Pools { return &Pools{live: live, nodes: map[string]publication{}} }

// Remove removes what is kept of a node.
func (p *Pools) Remove(node string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.nodes, node)
}

func (p *Pools) kept(node string) publication {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.nodes[node]
}

func (p *Pools) keep(node string, known publication) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.nodes[node] = known
}

// Published returns the pool of a node: the one that is kept, if it is of the present agent and suffices, or else the one of the API server. The zero
// value is a node without a pool.
func (p *Pools) Published(ctx context.Context, o *Observation, suffices func(wire.Reading) bool) (wire.Reading, error) {
	name, agent := o.GPUNode.Name, ""
	if status := o.Status.Agent; status != nil {
		agent = status.BootID + "/" + status.PodUID
	}
	if known := p.kept(name); known.agent == agent && agent != "" && suffices(known.pool) {
		return known.pool, nil
	}
	list := &resourceapi.ResourceSliceList{}
	if err := p.live.List(ctx, list, client.MatchingFields{resourceapi.ResourceSliceSelectorNodeName: name}); err != nil {
		return wire.Reading{}, fmt.Errorf("list ResourceSlices of node %s: %w", name, err)
	}
	for _, pool := range wire.Read(list.Items) {
		if pool.Driver != o.Assignment.DRADriver || pool.Pool != wire.PoolName(name, pool.Driver) {
			continue
		}
		if pool.Complete && agent != "" {
			p.keep(name, publication{agent, pool})
		}
		return pool, nil
	}
	return wire.Reading{}, nil
}
