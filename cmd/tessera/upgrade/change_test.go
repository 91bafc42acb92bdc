package upgrade

import (
	"bytes"
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

const (
	failed = "kind: ClusterPolicy\nmetadata: {name: default, generation: 2}\nspec: {driver: {version: 595.91.07}}\n" +
		"status: {observedGeneration: 2, rollout: {digest: abc, stage: Paused, since: \"2026-01-02T03:04:05Z\", done: 0, running: 0, failed: 2, waiting: 1}}\n"
	pausedPolicy = "kind: ClusterPolicy\nmetadata: {name: default, annotations: {tessera.dev/pause-upgrade: \"true\"}}\n"
	node         = "kind: GPUNode\nmetadata: {name: gpu-a}\nstatus: {lastGoodDriver: {source: Container, version: 580.65.06, owner: ClusterPolicy/default}}\n"
	other        = "kind: GPUNode\nmetadata: {name: gpu-b}\nstatus: {lastGoodDriver: {source: Container, version: 570.124.06, owner: ClusterPolicy/default}}\n"
	driver       = "kind: NVIDIADriver\nmetadata: {name: h100}\nspec: {default: true, version: 595.91.07}\n"
)

func TestChanges(t *testing.T) {
	policy := cluster.Target{Kind: cluster.Policy, Name: "default"}
	rollTo := func(version string) func(context.Context, *cluster.Cluster, cluster.Request) error {
		return func(ctx context.Context, c *cluster.Cluster, r cluster.Request) error {
			return rollback(ctx, c, r, version)
		}
	}
	tests := map[string]struct {
		run     func(context.Context, *cluster.Cluster, cluster.Request) error
		objects []string
		target  cluster.Target
		// out and err are contained in the output and in the error. patch is the sent patch, if any.
		out, err, patch string
	}{
		"pause":        {run: pause, objects: []string{quiet}, target: policy, out: "clusterpolicy.tessera.dev/default: upgrades paused: nodes in progress finish", patch: `{"metadata":{"annotations":{"tessera.dev/pause-upgrade":"true"}}}`},
		"pause twice":  {run: pause, objects: []string{pausedPolicy}, target: policy, out: "already paused"},
		"pause a node": {run: pause, objects: []string{node}, target: cluster.Target{Kind: cluster.GPUNode, Name: "gpu-a"}, out: "gpunode.tessera.dev/gpu-a: upgrades paused", patch: `{"metadata":{"annotations":{"tessera.dev/pause-upgrade":"true"}}}`},
		"no policy":    {run: pause, target: policy, err: "not found"},

		"resume":               {run: resume, objects: []string{pausedPolicy}, target: policy, out: "upgrades resumed", patch: `{"metadata":{"annotations":{"tessera.dev/pause-upgrade":null}}}`},
		"resume after nothing": {run: resume, objects: []string{quiet}, target: policy, out: "not paused"},
		"resume a node":        {run: resume, objects: []string{node}, target: cluster.Target{Kind: cluster.GPUNode, Name: "gpu-a"}, out: "not paused"},
		"after failures":       {run: resume, objects: []string{failed}, target: policy, out: "rollout abc resumed", patch: `{"metadata":{"annotations":{"tessera.dev/resume-upgrade":"abc"}}}`},
		"edited before":        {run: resume, objects: []string{"kind: ClusterPolicy\nmetadata: {name: default, generation: 3}\nstatus: {observedGeneration: 2}\n"}, target: policy, err: "has not processed the latest edit"},

		"roll back":          {run: rollTo(""), objects: []string{failed, node}, target: policy, out: "driver changed from 595.91.07 to 580.65.06", patch: `{"spec":{"driver":{"version":"580.65.06"}}}`},
		"to a version":       {run: rollTo("570.1"), objects: []string{driver}, target: cluster.Target{Kind: cluster.Driver, Name: "h100"}, out: "nvidiadriver.tessera.dev/h100: driver changed from 595.91.07 to 570.1", patch: `{"spec":{"version":"570.1"}}`},
		"to the same":        {run: rollTo("595.91.07"), objects: []string{failed}, target: policy, out: "already 595.91.07"},
		"no earlier version": {run: rollTo(""), objects: []string{failed}, target: policy, err: "name the version with --to-version"},
		"several versions":   {run: rollTo(""), objects: []string{failed, node, other}, target: policy, err: "570.124.06, 580.65.06: select one with --to-version"},
	}
	for name, test := range tests {
		client := clusterWith(t, test.objects...)
		var out bytes.Buffer
		err := test.run(t.Context(), &cluster.Cluster{Dynamic: client}, cluster.Request{Target: test.target, DryRun: "server", Out: &out})
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || !strings.Contains(out.String(), test.out) {
			t.Errorf("%s: %v, %q; want %q, %q", name, err, out.String(), test.err, test.out)
		}
		var patch string
		for _, action := range client.Actions() {
			if sent, ok := action.(clienttesting.PatchActionImpl); ok {
				patch = string(sent.Patch)
				if len(sent.PatchOptions.DryRun) != 1 || sent.PatchOptions.DryRun[0] != metav1.DryRunAll || !strings.Contains(out.String(), "(server dry run)") {
					t.Errorf("%s: not a dry run: %+v, %q", name, sent.PatchOptions, out.String())
				}
			}
		}
		if patch != test.patch {
			t.Errorf("%s: patch %s, want %s", name, patch, test.patch)
		}
	}
}

// TestPauseIsUndone pauses and resumes without a dry run.
func TestPauseIsUndone(t *testing.T) {
	c := &cluster.Cluster{Dynamic: clusterWith(t, quiet)}
	r := cluster.Request{Target: cluster.Target{Kind: cluster.Policy, Name: "default"}, DryRun: "none", Out: &bytes.Buffer{}}
	for _, step := range []struct {
		run  func(context.Context, *cluster.Cluster, cluster.Request) error
		want bool
	}{{pause, true}, {pause, true}, {resume, false}, {resume, false}} {
		if err := step.run(t.Context(), c, r); err != nil {
			t.Fatal(err)
		}
		var policy v1alpha1.ClusterPolicy
		if err := c.Read(t.Context(), r.Target, &policy); err != nil || isPaused(policy.ObjectMeta) != step.want {
			t.Errorf("paused %v, want %v; %v", isPaused(policy.ObjectMeta), step.want, err)
		}
	}
}
