package shares

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// resized is the answer of the agent (limiter.Resized).
type resized struct {
	Request     string `json:"request"`
	BeforeBytes uint64 `json:"beforeBytes"`
	Containers  int    `json:"containers"`
	Exceeded    []struct {
		GPU            string `json:"gpu"`
		LimitBytes     uint64 `json:"limitBytes"`
		ShareableBytes uint64 `json:"shareableBytes"`
	} `json:"exceeded"`
}

// run has the agent of the claim's node change the limit, and reports what was changed.
func (r request) run(ctx context.Context, c *cluster.Cluster) error {
	claim, err := r.find(ctx, c)
	if err != nil {
		return err
	}
	agent, err := agentOf(ctx, c, claim.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.AgentTimeout)
	defer cancel()
	command := []string{cluster.AgentName, "resize", "--claim", claim.UID, "--bytes", strconv.FormatUint(r.bytes, 10)}
	if r.request != "" {
		command = append(command, "--request", r.request)
	}
	text, err := r.runner.Run(ctx, agent, cluster.AgentContainer, command...)
	if err != nil {
		return fmt.Errorf("node %s: %w", claim.Node, err)
	}
	var result resized
	if err := json.Unmarshal(text, &result); err != nil {
		return fmt.Errorf("node %s: read the answer of the agent: %w", claim.Node, err)
	}
	return r.report(claim, result)
}

// find returns the claim, which must have devices of a node.
func (r request) find(ctx context.Context, c *cluster.Cluster) (claims.Claim, error) {
	list, err := claims.Load(ctx, c, claims.Selection{Namespace: c.Namespace})
	if err != nil {
		return claims.Claim{}, err
	}
	i := slices.IndexFunc(list.Items, func(claim claims.Claim) bool { return claim.Name == r.claim })
	switch {
	case i < 0:
		return claims.Claim{}, fmt.Errorf("no claim on GPUs is named %q in namespace %s", r.claim, c.Namespace)
	case list.Items[i].Node == "":
		return claims.Claim{}, fmt.Errorf("claim %s/%s is %s: it has no devices of a node", c.Namespace, r.claim, list.Items[i].State)
	}
	return list.Items[i], nil
}

// agentOf returns a running agent of the node. During an update there are two, of which each can change the limit.
func agentOf(ctx context.Context, c *cluster.Cluster, node string) (corev1.Pod, error) {
	namespace, err := c.SystemNamespace(ctx)
	if err != nil {
		return corev1.Pod{}, err
	}
	pods, err := c.ListPods(ctx, namespace)
	if err != nil {
		return corev1.Pod{}, err
	}
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName == node && cluster.IsRunningAgent(p) })
	if i < 0 {
		return corev1.Pod{}, fmt.Errorf("no agent runs on node %s in namespace %s: check its pod %s", node, namespace, cluster.AgentName)
	}
	return pods[i], nil
}

// report writes what was changed.
func (r request) report(claim claims.Claim, result resized) error {
	containers := "no container runs"
	switch result.Containers {
	case 0:
	case 1:
		containers = "1 running container"
	default:
		containers = fmt.Sprintf("%d running containers", result.Containers)
	}
	if _, err := fmt.Fprintf(r.out, "resourceclaim.resource.k8s.io/%s: memory limit of each share of request %s changed from %s to %s (%s)\n",
		claim.Name, result.Request, quantity(result.BeforeBytes), quantity(r.bytes), containers); err != nil {
		return err
	}
	for _, e := range result.Exceeded {
		if _, err := fmt.Fprintf(r.errOut, "Warning: the limits on %s of node %s are %s together, and its shares have %s: an allocation below a limit can fail\n",
			e.GPU, claim.Node, quantity(e.LimitBytes), quantity(e.ShareableBytes)); err != nil {
			return err
		}
	}
	return nil
}

// quantity returns a number of bytes as text, such as 12Gi.
func quantity(bytes uint64) string {
	if bytes == gpu.NoMemoryLimit {
		return "no limit"
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}
