package remediation

import (
	"bytes"
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
)

func TestPauseAndResume(t *testing.T) {
	s := clustertest.New(t)
	s.Add(&v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	s.GPUNode("gpu-a")
	c := s.Cluster()
	for _, args := range [][]string{nil, {"gpunode/gpu-a"}, {"gn/gpu-a"}} {
		target, err := cluster.ParseTarget(args, cluster.Policy, cluster.GPUNode)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			run    func(context.Context, *cluster.Cluster, cluster.Request) error
			text   string
			paused bool
		}{
			{pause, ": remediation paused: none starts", true}, {pause, "already paused", true}, {resume, "resumed\n", false}, {resume, "not paused", false},
		} {
			var out bytes.Buffer
			if err := step.run(t.Context(), c, cluster.Request{Target: target, DryRun: "none", Out: &out}); err != nil {
				t.Fatal(err)
			}
			var object metav1.PartialObjectMetadata
			if err := c.Read(t.Context(), target, &object); err != nil {
				t.Fatal(err)
			}
			if paused := v1alpha1.RemediationPaused(object.Annotations); paused != step.paused || !strings.Contains(out.String(), step.text) {
				t.Errorf("%s: %q, paused %v; want %q, %v", target, out.String(), paused, step.text, step.paused)
			}
		}
	}
}
