package node

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// writes records what is written.
type writes struct {
	client.Client
	all []string
}

func (w *writes) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	w.all = append(w.all, string(data))
	return err
}

func (w *writes) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	text, err := json.Marshal(object)
	w.all = append(w.all, string(text))
	return err
}

// Get returns the namespace with the label for admin access.
func (w *writes) Get(_ context.Context, _ types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	object.SetLabels(map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"})
	return nil
}

func TestFieldsDecideWhatIsWrittenOnNodes(t *testing.T) {
	for _, f := range []struct {
		field         string
		change        func(*v1alpha1.ClusterPolicySpec)
		before, after string
	}{
		{"featureLabels.enabled", func(s *v1alpha1.ClusterPolicySpec) { s.FeatureLabels.Enabled = new(false) }, "nvidia.com/gpu.product", "nvidia.com/gpu.present"},
		{"readinessTaint", func(s *v1alpha1.ClusterPolicySpec) { s.ReadinessTaint = true }, "nvidia.com/gpu.product", v1alpha1.TaintNotReady},
	} {
		t.Run(f.field, func(t *testing.T) {
			written := func(p controllertest.Policies) string {
				w := &writes{}
				r := New(Config{Cluster: action.Cluster{Client: w, Live: w, Namespace: controllertest.Namespace}})
				gpunode := &v1alpha1.GPUNode{}
				gpunode.Status.Hardware = &v1alpha1.HardwareStatus{GPUs: 1}
				gpunode.Status.Agent = &v1alpha1.AgentStatus{GPUs: 1, Product: "NVIDIA-H100"}
				c, n := p.Catalog(), controllertest.NodeInPool("")
				if err := r.updateNodeMarks(t.Context(), c, &nodeObservation{Observation: nodestate.Observation{GPUNode: gpunode, KubeNode: n, Assignment: c.Assign(n)}}, phase.Decision{}); err != nil {
					t.Fatal(err)
				}
				return strings.Join(w.all, "\n")
			}
			var p controllertest.Policies
			before := written(p)
			f.change(&p.Spec)
			after := written(p)
			if !strings.Contains(before, f.before) || !strings.Contains(after, f.after) || before == after {
				t.Errorf("wrote %s, and with the field %s", before, after)
			}
		})
	}
}

func TestValidatorFieldsDecideWhatIsProven(t *testing.T) {
	proven := func(p controllertest.Policies) int {
		w := &writes{}
		r := New(Config{Cluster: action.Cluster{Client: w, Live: w, Namespace: controllertest.Namespace}})
		gpunode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		gpunode.Status.Agent = &v1alpha1.AgentStatus{GPUs: 1, MIGCapable: true}
		s := &nodeObservation{Observation: nodestate.Observation{GPUNode: gpunode, Assignment: p.Catalog().Assign(controllertest.NodeInPool(""))}}
		s.Status = gpunode.Status
		if err := r.createNodeValidation(t.Context(), p.Catalog(), s); err != nil {
			t.Fatal(err)
		}
		return len(w.all)
	}
	var p controllertest.Policies
	both := proven(p)
	p.Spec.Validator.MIG = new(false)
	if one := proven(p); both != 4 || one != 2 {
		t.Errorf("%d objects with a slice and %d without, want a claim and a pod for each part", both, one)
	}
}
