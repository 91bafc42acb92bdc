package doctor

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Load asks the cluster and judges it at the moment. Without the slices there is nothing to say: that is an error; what else cannot be had is
// among the problems.
func Load(ctx context.Context, c *cluster.Cluster, now time.Time) (Report, error) {
	s := cluster.State{Drivers: c.Drivers}
	var problems []string
	var err error
	if s.Slices, err = c.ListSlices(ctx); err != nil {
		return Report{}, err
	}
	for _, part := range []struct {
		missing string
		load    func() error
	}{
		{"claims, and who suffers,", func() (err error) { s.Claims, err = c.ListClaims(ctx, ""); return err }},
		{"pods, of users and of Tessera,", func() (err error) { s.Pods, err = seen(c.ListPods(ctx, "")); return err }},
		{"nodes", func() (err error) { s.Nodes, err = c.ListNodes(ctx); return err }},
		{"GPUNodes, and what is being done,", func() (err error) { s.GPUNodes, err = c.ListGPUNodes(ctx); return err }},
		{"policies", func() (err error) { s.Policies, err = c.ListPolicies(ctx); return err }},
		{"DeviceTaintRules", func() (err error) { s.Rules, err = c.ListRules(ctx); return err }},
		{"leases", func() (err error) { s.Leases, err = c.ListLeases(ctx); return err }},
	} {
		if err := part.load(); err != nil {
			if ctx.Err() != nil {
				return Report{}, err
			}
			problems = append(problems, fmt.Sprintf("The %s are not looked at: %v", part.missing, err))
		}
	}
	report := Build(s, now)
	report.Problems = problems
	return report, nil
}

// seen is a list that is not nil when it could be had.
func seen(pods []corev1.Pod, err error) ([]corev1.Pod, error) {
	if err == nil && pods == nil {
		pods = []corev1.Pod{}
	}
	return pods, err
}
