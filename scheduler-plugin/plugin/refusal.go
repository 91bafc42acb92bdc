package plugin

import (
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/intree"
)

// A message lists at most maxReasons different reasons, of the first maxExplainedNodes nodes.
const (
	maxReasons        = 3
	maxExplainedNodes = 4
)

// rejectPod returns the status of a pod that no node can serve, with the reasons of some nodes.
func (p *Plugin) rejectPod(c *cycle, nodes []fwk.NodeInfo) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, append([]string{intree.ReasonCannotAllocate}, p.explainNodes(c, nodes)...)...)
}

// explainNodes returns why nodes cannot serve the pod, one line for each reason with the nodes that share it.
func (p *Plugin) explainNodes(c *cycle, nodes []fwk.NodeInfo) []string {
	of := map[string][]string{}
	var reasons []string
	for _, n := range p.nodesWithDevices(nodes) {
		demands, err := c.requirements.OnNode(n, c.budget)
		if err != nil {
			continue
		}
		reason := fit.Explain(&n.Fit, demands, c.budget.Part(fit.NodeSteps)).String()
		if _, ok := of[reason]; !ok {
			reasons = append(reasons, reason)
		}
		of[reason] = append(of[reason], n.Name)
	}
	var lines []string
	for _, reason := range reasons[:min(maxReasons, len(reasons))] {
		lines = append(lines, fmt.Sprintf("%s: %s", strings.Join(of[reason], ", "), reason))
	}
	return lines
}

// nodesWithDevices returns the first nodes that have devices of Tessera.
func (p *Plugin) nodesWithDevices(nodes []fwk.NodeInfo) []*index.Node {
	var found []*index.Node
	for _, info := range nodes {
		if len(found) == maxExplainedNodes {
			break
		}
		if n, ok := p.shared.index.Node(info.Node().Name); ok && len(n.Fit.Devices) > 0 {
			found = append(found, n)
		}
	}
	return found
}
