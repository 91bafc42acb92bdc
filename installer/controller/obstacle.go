package controller

import (
	"maps"
	"strings"
	"sync"
)

// Obstacles are why nodes, and single GPUs of them, do not get on: what kept their last action from being performed. It is safe for concurrent use.
type Obstacles struct {
	mutex sync.Mutex
	met   map[string]Obstacle
}

// Obstacle is an action and what it met when it was performed first in vain; what it meets later, in other words perhaps, is no news.
type Obstacle struct {
	action string
	Text   string
}

func NewObstacles() *Obstacles { return &Obstacles{met: map[string]Obstacle{}} }

// Set remembers how an action on a node, or on a GPU of one, ended.
func (o *Obstacles) Set(key, action string, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch {
	case err == nil:
		delete(o.met, key)
	case o.met[key].action != action:
		o.met[key] = Obstacle{action, err.Error()}
	}
}

// Of returns what a node, or a GPU of one, met last.
func (o *Obstacles) Of(key string) Obstacle {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.met[key]
}

// ForgetNode forgets a node and its GPUs.
func (o *Obstacles) ForgetNode(node string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	maps.DeleteFunc(o.met, func(key string, _ Obstacle) bool { return key == node || strings.HasPrefix(key, GPUKey(node, "")) })
}

// GPUKey is the key of a GPU of a node.
func GPUKey(node, gpu string) string { return node + "/" + gpu }

// Explain adds to the message of a decision why its action is not carried out.
func (o Obstacle) Explain(action, message string) string {
	if o.Text == "" || o.action != action || strings.Contains(message, o.Text) {
		return message
	}
	return strings.TrimPrefix(message+": "+o.Text, ": ")
}
