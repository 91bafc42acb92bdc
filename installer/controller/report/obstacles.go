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
	// explained has the last message of each key to which Explain added an error.
	explained map[string]explanation
}

// explanation is a message without and with the error that Explain added.
type explanation struct{ original, explained string }

// Obstacle is an action and the error of its first attempt that failed. Errors of later attempts are not kept: they may differ in details such as times,
// and each would be written into the status. The zero value means that the last action was performed.
type Obstacle struct {
	action string
	Text   string
}

// NewObstacles returns a store without obstacles.
func NewObstacles() *Obstacles {
	return &Obstacles{failed: map[string]Obstacle{}, explained: map[string]explanation{}}
}

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
	isOfNode := func(key string) bool { return key == node || strings.HasPrefix(key, GPUKey(node, "")) }
	maps.DeleteFunc(o.failed, func(key string, _ Obstacle) bool { return isOfNode(key) })
	maps.DeleteFunc(o.explained, func(key string, _ explanation) bool { return isOfNode(key) })
}

// Explain adds the error to the message of a decision whose action failed before. Original removes it when the message is read from the status: some
// decisions keep the message of the status, and would keep the error after the action succeeded.
func (o *Obstacles) Explain(key, action, message string) string {
	explained := o.Of(key).Explain(action, message)
	if explained != message {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		o.explained[key] = explanation{message, explained}
	}
	return explained
}

// Original returns a message without the error that Explain added to it. An error that was added before the installer was restarted stays.
func (o *Obstacles) Original(key, message string) string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if last, ok := o.explained[key]; ok && last.explained == message {
		return last.original
	}
	return message
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
