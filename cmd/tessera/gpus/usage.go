package gpus

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// The metrics of the agents that have the memory of containers with limited shares.
const (
	limitMetric = "tessera_container_memory_limit_bytes"
	usedMetric  = "tessera_container_memory_used_bytes"
)

// addUsage adds the containers with a limit to the holders of the list. An agent that cannot be queried is a problem of the list.
func (r request) addUsage(ctx context.Context, c *cluster.Cluster, list *List) error {
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return err
	}
	pods, err := c.ListPods(ctx, namespace)
	if err != nil {
		return err
	}
	runner := r.runner
	if runner == nil {
		runner = c.Runner()
	}
	for _, p := range pods {
		shown := slices.ContainsFunc(list.Items, func(g GPU) bool { return g.Node == p.Spec.NodeName && g.Shared != nil })
		if !cluster.IsRunningAgent(p) || !shown {
			continue
		}
		if err := addAgentUsage(ctx, runner, p, list); err != nil {
			list.Problems = append(list.Problems, fmt.Sprintf("Memory of containers on node %s is missing: %v", p.Spec.NodeName, err))
		}
	}
	return nil
}

// addAgentUsage adds the containers of one node. During an update of the agent, only one of two exports them.
func addAgentUsage(ctx context.Context, runner cluster.Runner, agent corev1.Pod, list *List) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.AgentTimeout)
	defer cancel()
	text, err := runner.Run(ctx, agent, cluster.AgentContainer, cluster.AgentName, "metrics")
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	used := map[string]uint64{}
	for _, m := range families[usedMetric].GetMetric() {
		used[labelsKey(m)] = uint64(m.GetGauge().GetValue())
	}
	for _, m := range families[limitMetric].GetMetric() {
		labels := labelsOf(m)
		for i := range list.Items {
			if g := &list.Items[i]; g.Node == agent.Spec.NodeName && g.Name == labels["gpu"] {
				g.addContainer(labels, Container{
					Pod: labels["pod"], Name: labels["container"], UsedBytes: used[labelsKey(m)], LimitBytes: uint64(m.GetGauge().GetValue()),
				})
			}
		}
	}
	return nil
}

// addContainer adds the container to the holder with its claim. A container with shares of several claims has none, and is added to the first holder of one
// of its pods.
func (g *GPU) addContainer(labels map[string]string, c Container) {
	i := slices.IndexFunc(g.Holders, func(h Holder) bool {
		if h.Claim.Namespace != labels["namespace"] {
			return false
		}
		return h.Claim.Name == labels["claim"] || labels["claim"] == "" && slices.ContainsFunc(h.Pods, func(p Pod) bool { return p.Name == c.Pod })
	})
	if i < 0 {
		return // the claim was released just now
	}
	h := &g.Holders[i]
	h.Containers = append(h.Containers, c)
	slices.SortFunc(h.Containers, func(a, b Container) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name)) })
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// labelsKey identifies a series among those of one metric.
func labelsKey(m *dto.Metric) string { return fmt.Sprint(labelsOf(m)) }

// text describes the container.
func (c Container) text() string {
	return fmt.Sprintf("%s of %s: %s of %s allocated", cmp.Or(c.Name, "a container"), cmp.Or(c.Pod, "an unnamed pod"), Size(c.UsedBytes), Size(c.LimitBytes))
}
