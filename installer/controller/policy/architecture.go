package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reportArchitectures adds a fault for the GPU nodes with an architecture for which the release has no images. Their GPUNodes come from the labels of Node
// Feature Discovery: no pod of ours is placed there.
func (p *pass) reportArchitectures() {
	built := p.input.Images.Architectures
	var names []string
	for _, m := range p.members {
		if m.assignment.Managed() && len(built) > 0 && !slices.Contains(built, m.node.Labels[corev1.LabelArchStable]) {
			names = append(names, m.node.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	p.faults = append(p.faults, fault{"ArchitectureMissing", fmt.Sprintf(
		"%d GPU nodes have an architecture for which the release has no images (%s), such as %s: they get no driver and no agent; push images for it and set "+
			"images.architectures", len(names), strings.Join(built, ", "), names[0])})
}
