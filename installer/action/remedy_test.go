package action

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// clusterOf is a cluster with a GPUNode, and how it stands there now.
func clusterOf(t *testing.T, node *v1alpha1.GPUNode) (Cluster, func() *v1alpha1.GPUNode) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := Cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(node).WithStatusSubresource(node).Build(), Namespace: "tessera-system"}
	return c, func() *v1alpha1.GPUNode {
		now := &v1alpha1.GPUNode{}
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(node), now); err != nil {
			t.Fatal(err)
		}
		return now
	}
}

// An order replaces that for the same GPU and leaves the others; given twice it is written once.
func TestDirect(t *testing.T) {
	since := metav1.NewTime(time.Unix(1000, 0))
	order := func(gpu, id string, step v1alpha1.RemedyOrder) v1alpha1.Remedy {
		return v1alpha1.Remedy{GPU: gpu, ID: id, Step: step, Reason: "r", Since: since}
	}
	c, now := clusterOf(t, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	for _, o := range []v1alpha1.Remedy{
		order("gpu-b", "1", v1alpha1.OrderHold), order("gpu-a", "2", v1alpha1.OrderHold), order("gpu-b", "1", v1alpha1.OrderReset),
	} {
		if err := (Direct{Node: now(), Order: o}).Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		version := now().ResourceVersion
		if err := (Direct{Node: now(), Order: o}).Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if now().ResourceVersion != version {
			t.Errorf("the order %+v was written twice", o)
		}
	}
	want := []v1alpha1.Remedy{order("gpu-a", "2", v1alpha1.OrderHold), order("gpu-b", "1", v1alpha1.OrderReset)}
	if diff := cmp.Diff(want, now().Spec.Remedies); diff != "" {
		t.Error(diff)
	}
}

// The history gets one record for an attempt, also when a crash came between it and the order; the oldest of more than 32 goes.
func TestRelease(t *testing.T) {
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Spec.Remedies = []v1alpha1.Remedy{{GPU: "gpu-a", ID: "new"}, {GPU: "gpu-b", ID: "other"}}
	at := metav1.NewTime(time.Unix(1000, 0))
	record := func(id string) v1alpha1.RemedyRecord {
		return v1alpha1.RemedyRecord{ID: id, GPU: "gpu-a", Faults: []string{"XID 95"}, Outcome: v1alpha1.OutcomeRecovered, Began: at, Ended: at}
	}
	for i := range longestHistory {
		node.Status.History = append(node.Status.History, record(fmt.Sprint(i)))
	}
	c, now := clusterOf(t, node)
	written, latest := 0, record("new")
	for range 3 {
		recorded, err := Release{Node: now(), GPU: "gpu-a", Record: &latest}.Do(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if recorded {
			written++
			// The order comes back, as after a crash before it went.
			half := now()
			half.Spec.Remedies = node.Spec.Remedies
			if err := c.Client.Update(t.Context(), half); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := now()
	if history := got.Status.History; written != 1 || len(history) != longestHistory || history[0].ID != "new" || history[longestHistory-1].ID != fmt.Sprint(longestHistory-2) {
		t.Errorf("%d records written; the history has %d, from %s to %s", written, len(history), history[0].ID, history[len(history)-1].ID)
	}
	if len(got.Spec.Remedies) != 1 || got.Spec.Remedies[0].GPU != "gpu-b" {
		t.Errorf("orders are %+v", got.Spec.Remedies)
	}
}

// A proof chooses the GPUs that it is for by what their monitors publish, and has names of its own.
func TestScopeOfAProof(t *testing.T) {
	tests := map[string]struct {
		scope Scope
		want  string
	}{
		"all":         {Scope{}, ""},
		"one":         {Scope{Driver: "gpu.example", Only: "GPU-1"}, `device.attributes["gpu.example"].?uuid.orValue('') == "GPU-1"`},
		"all but two": {Scope{Driver: "gpu.example", Without: []string{"GPU-1", ""}}, `!(device.attributes["gpu.example"].?uuid.orValue('') in ["GPU-1", ""])`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := Validate{Node: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Scope: test.scope}
			claim := v.claim(Cluster{Namespace: "tessera-system"}, PartOf("gpu-a"))
			got := ""
			for _, s := range claim.Spec.Devices.Requests[0].Exactly.Selectors {
				got += s.CEL.Expression
			}
			if got != test.want {
				t.Errorf("it selects by %s, want %s", got, test.want)
			}
			if claim.Name != "tessera-validation-n-gpu-a" {
				t.Errorf("it is called %s", claim.Name)
			}
			slice := v.claim(Cluster{}, PartMIG).Spec.Devices.Requests[0].Exactly
			if slice.AllocationMode != resourceapi.DeviceAllocationModeExactCount || len(slice.Selectors) > 0 {
				t.Errorf("a slice is asked for as %+v", slice)
			}
		})
	}
	node := &v1alpha1.GPUNode{Spec: v1alpha1.GPUNodeSpec{Remedies: []v1alpha1.Remedy{{GPU: "gpu-a"}}}}
	if parts := PartsOf(node); !slices.Contains(parts, PartOf("gpu-a")) || len(parts) != len(Parts())+1 {
		t.Errorf("on the node may be %q", parts)
	}
}
