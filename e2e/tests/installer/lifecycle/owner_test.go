package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
)

// operands returns the installer's objects of the cluster, by kind and name. Those of a single node belong to its GPUNode and are left out.
func (w *world) operands() map[string]client.Object {
	w.Helper()
	found := map[string]client.Object{}
	for _, list := range []client.ObjectList{
		&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &resourceapi.ResourceClaimTemplateList{},
		&policyv1.PodDisruptionBudgetList{}, &nodev1.RuntimeClassList{}, &resourceapi.DeviceTaintRuleList{},
		&admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
	} {
		w.must(w.admin.List(w.Context(), list, client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}))
		w.must(meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && object.GetLabels()[action.LabelNode] == "" {
				found[fmt.Sprintf("%T %s", object, object.GetName())] = object
			}
			return nil
		}))
	}
	return found
}

// unowned returns an operand that the ClusterPolicy does not control; empty: it controls all.
func (w *world) unowned() string {
	w.Helper()
	policy := get(w, &v1alpha1.ClusterPolicy{}, "", v1alpha1.ClusterPolicyName)
	for name, object := range w.operands() {
		if !metav1.IsControlledBy(object, policy) || len(object.GetOwnerReferences()) != 1 {
			return fmt.Sprintf("%s has the owners %v", name, object.GetOwnerReferences())
		}
	}
	return ""
}

// collectGarbage runs the garbage collector of kube-controller-manager, alone, until the test ends. It returns when an object with an absent owner was
// deleted, which the garbage collector does after it has read all objects.
func (w *world) collectGarbage() {
	w.Helper()
	programs, err := harness.ClusterPrograms(w.Context())
	w.must(err)
	port, err := harness.HoldPort()
	w.must(err)
	w.Cleanup(port.Release)
	process, err := harness.Start(filepath.Join(w.TempDir(), "controllers.log"), exec.Command(
		filepath.Join(programs[binaries.Kubernetes], "kube-controller-manager"), "--kubeconfig="+w.Kubeconfig, "--controllers=garbage-collector-controller",
		"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port.Number), "--permit-port-sharing"))
	w.must(err)
	w.Cleanup(process.Kill)
	first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: foreign, Name: "garbage", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.APIVersion, Kind: "ClusterPolicy", Name: "absent", UID: "absent",
	}}}}
	w.must(w.admin.Create(w.Context(), first))
	w.poll(func() error { return errors.Join(process.Alive(), w.absent(first)) })
}

// poll waits until do succeeds.
func (w *world) poll(do func() error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	w.must(harness.Poll(ctx, func(context.Context) error { return do() }))
}

// absent returns an error while an object exists.
func (w *world) absent(object client.Object) error {
	err := w.admin.Get(w.Context(), client.ObjectKeyFromObject(object), object)
	if err == nil {
		return fmt.Errorf("%T %s exists", object, object.GetName())
	}
	return client.IgnoreNotFound(err)
}

// TestADeletedPolicyTakesItsOperandsAlong: the garbage collector of Kubernetes deletes what the installer has applied, as after a prune by a GitOps tool
// that runs no hook, whether the installer is already gone or still runs. Without an installer, and with a policy, everything stays. GPUNodes stay.
func TestADeletedPolicyTakesItsOperandsAlong(t *testing.T) {
	for name, test := range map[string]struct {
		runs  bool
		order metav1.DeletionPropagation
	}{
		"without an installer, as kubectl deletes":              {false, metav1.DeletePropagationBackground},
		"with an installer, in the foreground, as Argo CD does": {true, metav1.DeletePropagationForeground},
	} {
		t.Run(name, func(t *testing.T) {
			w := installed(t, machine{name: "n1"})
			if missing := w.unowned(); missing != "" {
				t.Error(missing)
			}
			before := w.operands()
			for _, name := range []string{
				"*v1.DaemonSet tessera-node", "*v1.Deployment tessera-scheduler", "*v1.MutatingAdmissionPolicyBinding " + render.SchedulerAssignment,
			} {
				if before[name] == nil {
					t.Fatalf("there is no %s, so its deletion is not tested; there are %v", name, slices.Sorted(maps.Keys(before)))
				}
			}
			if !test.runs {
				w.stop()
			}
			w.collectGarbage()
			if after := w.operands(); len(after) != len(before) {
				t.Fatalf("%d of %d operands exist although the policy does", len(after), len(before))
			}
			policy := get(w, &v1alpha1.ClusterPolicy{}, "", v1alpha1.ClusterPolicyName)
			w.must(w.admin.Delete(t.Context(), policy, client.PropagationPolicy(test.order)))
			w.poll(func() error {
				if left := w.operands(); len(left) > 0 {
					return fmt.Errorf("these operands exist: %v", slices.Sorted(maps.Keys(left)))
				}
				return w.absent(policy)
			})
			if w.gpunode("n1").Status.Phase == "" {
				t.Error("the GPUNode lost its status")
			}
		})
	}
}

// TestOperandsOfAnOlderReleaseAreAdopted: objects without an owner, and those of a ClusterPolicy that was created again, get the present one without a
// change that restarts pods. A driver that no policy wants any more and that nodes still run is one of them.
func TestOperandsOfAnOlderReleaseAreAdopted(t *testing.T) {
	w := installed(t, machine{name: "n1"})
	w.stop()
	templates := map[string]int64{}
	for name, object := range w.operands() {
		w.edit(object, func(o client.Object) {
			o.SetOwnerReferences(nil)
			if name == "*v1.DaemonSet tessera-node" {
				o.SetOwnerReferences([]metav1.OwnerReference{{
					APIVersion: v1alpha1.APIVersion, Kind: "ClusterPolicy", Name: v1alpha1.ClusterPolicyName, UID: "earlier", Controller: new(true),
				}})
			}
		})
		templates[name] = object.GetGeneration()
	}
	pods := w.podUIDs("tessera-driver", "tessera-node")
	w.start()
	w.poll(func() error {
		if missing := w.unowned(); missing != "" {
			return errors.New(missing)
		}
		return nil
	})
	for name, object := range w.operands() {
		if object.GetGeneration() != templates[name] {
			t.Errorf("the spec of %s was written", name)
		}
	}
	w.untilReady()
	if after := w.podUIDs("tessera-driver", "tessera-node"); len(pods) == 0 || fmt.Sprint(after) != fmt.Sprint(pods) {
		t.Errorf("pods were replaced: %v, before %v", after, pods)
	}
}
