package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// clusterWith returns a client of a cluster with the objects.
func clusterWith(t *testing.T, objects ...string) *fake.FakeDynamicClient {
	t.Helper()
	var list []runtime.Object
	for _, text := range objects {
		content, err := yaml.YAMLToJSON([]byte("apiVersion: tessera.dev/v1alpha1\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			t.Fatal(err)
		}
		list = append(list, object)
	}
	kinds := map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("clusterpolicies"): "ClusterPolicyList",
		v1alpha1.GroupVersion.WithResource("nvidiadrivers"):   "NVIDIADriverList",
		v1alpha1.GroupVersion.WithResource("gpunodes"):        "GPUNodeList",
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, list...)
}

// statusSource returns a source that reads the installer's status.
func statusSource(client dynamic.Interface) source {
	return func(ctx context.Context) (Report, error) { return loadReport(ctx, client) }
}

const (
	quiet   = "kind: ClusterPolicy\nmetadata: {name: default, generation: 2}\nstatus: {observedGeneration: 2, plan: {nodes: 0, pods: 0}}\n"
	edited  = "kind: ClusterPolicy\nmetadata: {name: default, generation: 3, annotations: {tessera.dev/pause-upgrade: \"true\"}}\nstatus: {observedGeneration: 2}\n"
	rolling = `
kind: NVIDIADriver
metadata: {name: h100, generation: 5}
spec: {nodeSelector: {}}
status:
  observedGeneration: 5
  plan: {nodes: 70, pods: 1, waves: [{count: 1, nodes: [gpu-a]}, {count: 69, nodes: [gpu-b, gpu-c]}]}
  rollout: {digest: abc, stage: Paused, since: "2026-01-02T03:04:05Z", reason: two nodes failed, done: 3, running: 0, failed: 2, waiting: 65}
`
	disputed = "kind: NVIDIADriver\nmetadata: {name: a, generation: 1}\nstatus: {observedGeneration: 1, conflicts: [gpu-x, gpu-y]}\n"
)

func TestUpgrade(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		objects []string
		want    string
	}{
		"nothing installed": {nil, "There is no ClusterPolicy: the installer changes nothing.\n"},
		"nothing to do":     {[]string{quiet}, "ClusterPolicy/default\n  No node changes its driver, no pod loses its GPUs.\n"},
		"just edited, and paused": {[]string{edited}, `ClusterPolicy/default
  The installer has not processed the latest edit yet: the following is the state before the edit.
  Paused by the annotation tessera.dev/pause-upgrade: no node starts an upgrade.
  No node changes its driver, no pod loses its GPUs.
`},
		"a rollout that failures paused": {[]string{quiet, rolling}, `ClusterPolicy/default
  No node changes its driver, no pod loses its GPUs.

NVIDIADriver/h100
  Rollout Paused since 2026-01-02 03:04:05Z: 3 done, 0 running, 2 failed, 65 waiting: two nodes failed
  To resume: tessera upgrade resume nvidiadriver/h100
  70 nodes to change, 1 pod to lose GPUs, in this order:
  WAVE   NODES   NAMES
  1      1       gpu-a
  2      69      gpu-b,gpu-c and 67 more
`},
		"two drivers for a node": {[]string{disputed}, `NVIDIADriver/a
  These nodes are also selected by another driver and stay unchanged: gpu-x, gpu-y
  No node changes its driver, no pod loses its GPUs.
`},
	}
	for name, test := range tests {
		var out bytes.Buffer
		if err := run(t.Context(), statusSource(clusterWith(t, test.objects...)), output.Flags{Format: output.Text, Color: "never"}, &out); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), statusSource(clusterWith(t, rolling)), output.Flags{Format: output.JSON, Color: "never"}, &out); err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Drivers) != 1 || report.Drivers[0].Plan.Pods != 1 || report.Drivers[0].Rollout.Waiting != 65 {
		t.Errorf("the report is %+v", report)
	}
}

func TestWithoutTheInstaller(t *testing.T) {
	t.Parallel()
	client := clusterWith(t)
	client.PrependReactor("list", "clusterpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "tessera.dev", Resource: "clusterpolicies"}, "")
	})
	err := run(t.Context(), statusSource(client), output.Flags{Format: output.Text, Color: "never"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "check that the installer's chart is installed") {
		t.Errorf("a cluster without the CRDs: %v", err)
	}
}
