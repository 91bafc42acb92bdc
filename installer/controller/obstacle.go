package controller

import (
	"maps"
	"strings"
	"sync"
)

// obstacles are why nodes, and single GPUs of them, do not get on: what kept their last action from being performed. It is safe for concurrent use.
type obstacles struct {
	mutex sync.Mutex
	met   map[string]obstacle
}

// obstacle is an action and what it met when it was performed first in vain; what it meets later, in other words perhaps, is no news.
type obstacle struct {
	action string
	text   string
}

func newObstacles() *obstacles { return &obstacles{met: map[string]obstacle{}} }

// set remembers how an action on a node, or on a GPU of one, ended.
func (o *obstacles) set(key, action string, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	switch {
	case err == nil:
		delete(o.met, key)
	case o.met[key].action != action:
		o.met[key] = obstacle{action, err.Error()}
	}
}

// of returns what a node, or a GPU of one, met last.
func (o *obstacles) of(key string) obstacle {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.met[key]
}

// forget forgets a node and its GPUs.
func (o *obstacles) forget(node string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	maps.DeleteFunc(o.met, func(key string, _ obstacle) bool { return key == node || strings.HasPrefix(key, gpuKey(node, "")) })
}

// gpuKey is the key of a GPU of a node.
func gpuKey(node, gpu string) string { return node + "/" + gpu }

// explain adds to the message of a decision why its action is not carried out.
func (o obstacle) explain(action, message string) string {
	if o.text == "" || o.action != action || strings.Contains(message, o.text) {
		return message
	}
	return strings.TrimPrefix(message+": "+o.text, ": ")
}
