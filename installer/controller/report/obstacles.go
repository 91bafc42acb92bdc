package report

import (
	"maps"
	"strings"
	"sync"
)

// Obstacles keeps, for nodes and for single GPUs of them, why their last action failed. It is safe for concurrent use.
type Obstacles struct {
	mutex sync.Mutex
	// failed has the obstacles by node name or GPUKey.
	failed map[string]Obstacle
}

// Obstacle is an action and the error of its first attempt that failed. Errors of later attempts are not kept: they may differ in details such as times,
// and each would be written into the status. The zero value means that the last action was performed.
type Obstacle struct {
	action string
	Text   string
}

// NewObstacles returns a store without obstacles.
func NewObstacles() *Obstacles { return &Obstacles{failed: map[string]Obstacle{}} }

// Set keeps how an action on a node or GPU ended.
func (o *Obstacles) Set(key, action string, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch {
	case err == nil:
		delete(o.failed, key)
	case o.failed[key].action != action:
		o.failed[key] = Obstacle{action, err.Error()}
	}
}

// Of returns the obstacle of a node or GPU.
func (o *Obstacles) Of(key string) Obstacle {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.failed[key]
}

// RemoveNode removes the obstacles of a node and its GPUs.
func (o *Obstacles) RemoveNode(node string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	maps.DeleteFunc(o.failed, func(key string, _ Obstacle) bool { return key == node || strings.HasPrefix(key, GPUKey(node, "")) })
}

// GPUKey returns the key of a GPU of a node.
func GPUKey(node, gpu string) string { return node + "/" + gpu }

// Explain adds the error to the message of a decision whose action failed before.
func (o Obstacle) Explain(action, message string) string {
	if o.Text == "" || o.action != action || strings.Contains(message, o.Text) {
		return message
	}
	return strings.TrimPrefix(message+": "+o.Text, ": ")
}
