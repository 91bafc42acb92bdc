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

// newCluster returns a cluster with one GPUNode, and a function that reads it.
func newCluster(t *testing.T, node *v1alpha1.GPUNode) (Cluster, func() *v1alpha1.GPUNode) {
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

// An order replaces the one of the same GPU and leaves the others. Repeating it writes nothing.
func TestWriteRemedyOrder(t *testing.T) {
	since := metav1.NewTime(time.Unix(1000, 0))
	order := func(gpu, id string, step v1alpha1.RemediationOrder) v1alpha1.Remediation {
		return v1alpha1.Remediation{GPU: gpu, ID: id, Step: step, Reason: "r", Since: since}
	}
	c, now := newCluster(t, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	for _, o := range []v1alpha1.Remediation{
		order("gpu-b", "1", v1alpha1.OrderHold), order("gpu-a", "2", v1alpha1.OrderHold), order("gpu-b", "1", v1alpha1.OrderReset),
	} {
		if err := c.WriteRemedyOrder(t.Context(), now(), o); err != nil {
			t.Fatal(err)
		}
		version := now().ResourceVersion
		if err := c.WriteRemedyOrder(t.Context(), now(), o); err != nil {
			t.Fatal(err)
		}
		if now().ResourceVersion != version {
			t.Errorf("the order %+v was written twice", o)
		}
	}
	want := []v1alpha1.Remediation{order("gpu-a", "2", v1alpha1.OrderHold), order("gpu-b", "1", v1alpha1.OrderReset)}
	if diff := cmp.Diff(want, now().Spec.Remediations); diff != "" {
		t.Error(diff)
	}
}

// An attempt is recorded once, also after a crash between the record and the removal of the order. The history keeps 32 records, the latest first.
func TestReleaseGPU(t *testing.T) {
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Spec.Remediations = []v1alpha1.Remediation{{GPU: "gpu-a", ID: "new"}, {GPU: "gpu-b", ID: "other"}}
	at := metav1.NewTime(time.Unix(1000, 0))
	record := func(id string) v1alpha1.RemediationRecord {
		return v1alpha1.RemediationRecord{ID: id, GPU: "gpu-a", Faults: []string{"XID 95"}, Outcome: v1alpha1.OutcomeRecovered, Began: at, Ended: at}
	}
	for i := range maxHistory {
		node.Status.History = append(node.Status.History, record(fmt.Sprint(i)))
	}
	c, now := newCluster(t, node)
	written, latest := 0, record("new")
	for range 3 {
		recorded, err := c.ReleaseGPU(t.Context(), now(), "gpu-a", &latest)
		if err != nil {
			t.Fatal(err)
		}
		if recorded {
			written++
			// As after a crash between the two writes: the record exists and so does the order.
			half := now()
			half.Spec.Remediations = node.Spec.Remediations
			if err := c.Client.Update(t.Context(), half); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := now()
	if history := got.Status.History; written != 1 || len(history) != maxHistory || history[0].ID != "new" || history[maxHistory-1].ID != fmt.Sprint(maxHistory-2) {
		t.Errorf("%d records written; the history has %d, from %s to %s", written, len(history), history[0].ID, history[len(history)-1].ID)
	}
	if len(got.Spec.Remediations) != 1 || got.Spec.Remediations[0].GPU != "gpu-b" {
		t.Errorf("orders are %+v", got.Spec.Remediations)
	}
}

// A validation selects GPUs by the UUIDs of their devices; each part has its own name.
func TestValidationScopeSelectsByUUID(t *testing.T) {
	tests := map[string]struct {
		scope ValidationScope
		want  string
	}{
		"all":         {ValidationScope{}, ""},
		"one":         {ValidationScope{Driver: "gpu.example", Only: "GPU-1"}, `device.attributes["gpu.example"].?uuid.orValue('') == "GPU-1"`},
		"all but two": {ValidationScope{Driver: "gpu.example", Without: []string{"GPU-1", ""}}, `!(device.attributes["gpu.example"].?uuid.orValue('') in ["GPU-1", ""])`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := Validation{Node: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Scope: test.scope}
			claim := Cluster{Namespace: "tessera-system"}.validationClaim(v, GPUValidationPart("gpu-a"))
			got := ""
			for _, s := range claim.Spec.Devices.Requests[0].Exactly.Selectors {
				got += s.CEL.Expression
			}
			if got != test.want {
				t.Errorf("selector: got %s, want %s", got, test.want)
			}
			if claim.Name != "tessera-validation-n-gpu-a" {
				t.Errorf("name: got %s", claim.Name)
			}
			mig := Cluster{}.validationClaim(v, PartMIG).Spec.Devices.Requests[0].Exactly
			if mig.AllocationMode != resourceapi.DeviceAllocationModeExactCount || len(mig.Selectors) > 0 {
				t.Errorf("the request for a MIG device is %+v", mig)
			}
		})
	}
	node := &v1alpha1.GPUNode{Spec: v1alpha1.GPUNodeSpec{Remediations: []v1alpha1.Remediation{{GPU: "gpu-a"}}}}
	if parts := AllValidationParts(node); !slices.Contains(parts, GPUValidationPart("gpu-a")) || len(parts) != len(NodeValidationParts())+1 {
		t.Errorf("parts are %q", parts)
	}
}
