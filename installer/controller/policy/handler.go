package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// runtimeHandlers are the names under which containerd, CRI-O and their distributions have the handler that starts ordinary containers. CRI-O before 1.31
// has runc, later ones have crun and may lack runc.
var runtimeHandlers = []string{"runc", "crun"}

// chooseRuntimeHandler sets the handler of the RuntimeClass: the first of runtimeHandlers that all GPU nodes have. kubelet reports the handlers that the
// runtime lists (KEP-3857). Nodes whose runtime lists none, such as containerd 1.7, do not decide. Without a common handler the class has runc, and the
// policy a fault.
func (p *pass) chooseRuntimeHandler() {
	if p.input.Policy.Spec.Toolkit.RuntimeClass == "" {
		return
	}
	lacking := map[string]*corev1.Node{}
	for _, m := range p.members {
		if len(m.node.Status.RuntimeHandlers) == 0 || !m.assignment.Managed() {
			continue
		}
		for _, handler := range runtimeHandlers {
			if !slices.ContainsFunc(m.node.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == handler }) {
				lacking[handler] = m.node
			}
		}
	}
	for _, handler := range runtimeHandlers {
		if lacking[handler] == nil {
			p.input.RuntimeHandler = handler
			return
		}
	}
	node := lacking[runtimeHandlers[0]]
	var names []string
	for _, h := range node.Status.RuntimeHandlers {
		if h.Name != "" {
			names = append(names, h.Name)
		}
	}
	p.faults = append(p.faults, fault{"RuntimeHandlerMissing", fmt.Sprintf(
		"node %s has the runtime handlers %s, and no handler of %s is on all GPU nodes: pods with the RuntimeClass %s do not start there; remove "+
			"toolkit.runtimeClass, and runtimeClassName from pods, because CDI needs none", node.Name, strings.Join(names, ", "),
		strings.Join(runtimeHandlers, ", "), p.input.Policy.Spec.Toolkit.RuntimeClass)})
}
