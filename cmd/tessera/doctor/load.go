package doctor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/internal/capability"
)

// Load lists the objects and returns the diagnosis at the time now. It fails when ResourceSlices cannot be listed or ctx ends; any other list that
// fails becomes a problem of the report.
func Load(ctx context.Context, c *cluster.Cluster, now time.Time) (Report, error) {
	s := cluster.State{Drivers: c.Drivers}
	var problems []string
	var err error
	if s.Slices, err = c.ListResourceSlices(ctx); err != nil {
		return Report{}, err
	}
	for _, part := range []struct {
		missing string
		load    func() error
	}{
		{"claims and affected pods", func() (err error) { s.Claims, err = c.ListClaims(ctx, "", ""); return err }},
		{"pods of users and of Tessera", func() (err error) { s.Pods, err = nonNil(c.ListPods(ctx, "")); return err }},
		{"nodes", func() (err error) { s.Nodes, err = c.ListNodes(ctx, ""); return err }},
		{"GPUNodes and the status of remediations", func() (err error) { s.GPUNodes, err = c.ListGPUNodes(ctx); return err }},
		{"policies", func() (err error) { s.Policies, err = c.ListPolicies(ctx); return err }},
		{"DeviceTaintRules", func() (err error) { s.Rules, err = c.ListRules(ctx); return err }},
		{"Tessera's components", func() (err error) { s.System, err = c.SystemNamespace(ctx); return err }},
		{"leases", func() (err error) { s.Leases, err = c.ListLeases(ctx); return err }},
	} {
		if err := part.load(); err != nil {
			if ctx.Err() != nil {
				return Report{}, err
			}
			problems = append(problems, fmt.Sprintf("Not checked: %s: %v", part.missing, err))
		}
	}
	report := Build(s, now)
	report.Problems = problems
	report.Reduced = reduced(c.Server, activePolicy(s.Policies))
	return report, nil
}

// reduced returns what is reduced: what the API server does not permit, or otherwise what the installer reports, such as that the release has no
// tessera-scheduler for this version of Kubernetes. policy can be nil.
func reduced(server *capability.Server, policy *v1alpha1.ClusterPolicy) []string {
	if server != nil && len(server.Reduced()) > 0 {
		return server.Reduced()
	}
	if policy == nil {
		return nil
	}
	if c := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReduced); c != nil && c.Status == metav1.ConditionTrue {
		return []string{c.Message}
	}
	return nil
}

// nonNil turns the nil list of a successful call into an empty one: Build takes nil for unreadable.
func nonNil(pods []corev1.Pod, err error) ([]corev1.Pod, error) {
	if err == nil && pods == nil {
		pods = []corev1.Pod{}
	}
	return pods, err
}
