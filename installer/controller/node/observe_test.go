package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// drain.Users who take the GPUs before a slice is proven do not make the node fail: all of its GPUs prove it.
func TestUsersOutrunTheProofOfSlices(t *testing.T) {
	tests := map[string]struct {
		users     int
		allocated bool
		gpus, mig corev1.PodPhase
		want      phase.ValidationState
	}{
		"users were first":                        {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationPassed},
		"users were first, and a GPU is broken":   {users: 1, gpus: corev1.PodFailed, mig: corev1.PodPending, want: phase.ValidationFailed},
		"no pod exists":                           {gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationRunning},
		"the slice is allocated":                  {users: 1, allocated: true, gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationRunning},
		"the slice does not compute":              {users: 1, allocated: true, gpus: corev1.PodSucceeded, mig: corev1.PodFailed, want: phase.ValidationFailed},
		"the slice did not compute, and is free":  {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodFailed, want: phase.ValidationFailed},
		"users were first, and GPUs are at work":  {users: 1, gpus: corev1.PodRunning, mig: corev1.PodPending, want: phase.ValidationRunning},
		"slice and GPUs compute, users come then": {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodSucceeded, want: phase.ValidationPassed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &nodeObservation{Observation: nodestate.Observation{GPUNode: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}, claims: test.users}
			r := New(Config{Cluster: action.Cluster{Namespace: controllertest.Namespace}})
			var objects []client.Object
			for part, state := range map[action.ValidationPart]corev1.PodPhase{action.PartGPUs: test.gpus, action.PartMIG: test.mig} {
				meta := metav1.ObjectMeta{
					Namespace: r.Cluster.Namespace, Name: action.ValidationName("n", part), CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
					Annotations: map[string]string{action.AnnotationBarrier: s.barrier()},
				}
				claim := &resourceapi.ResourceClaim{ObjectMeta: meta}
				if test.allocated || part == action.PartGPUs {
					claim.Status.Allocation = &resourceapi.AllocationResult{}
				}
				objects = append(objects, claim, &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: state}})
			}
			r.Cluster.Client = controllertest.NewPlainClient(t, objects...)
			got, err := r.readValidation(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != test.want {
				t.Errorf("got %q, want %q", got.State, test.want)
			}
		})
	}
}

// A claim that waits for its pod is gone on with, unless it is of another attempt, or was used: then it is left over.
func TestProofBegun(t *testing.T) {
	made := metav1.NewTime(time.Unix(1, 0))
	begun := phase.Validation{State: phase.ValidationRunning, Since: made.Time, Begun: true}
	tests := map[string]struct {
		part   action.ValidationPart
		change func(*resourceapi.ResourceClaim)
		want   phase.Validation
	}{
		"as it was made":     {want: begun},
		"of another attempt": {change: func(c *resourceapi.ResourceClaim) { c.Annotations[action.AnnotationBarrier] = "other" }, want: phase.Validation{Leftover: true}},
		"used": {change: func(c *resourceapi.ResourceClaim) {
			c.Status.Allocation = &resourceapi.AllocationResult{}
		}, want: phase.Validation{Leftover: true}},
		"going":      {change: func(c *resourceapi.ResourceClaim) { c.DeletionTimestamp, c.Finalizers = &made, []string{"f/f"} }, want: phase.Validation{Leftover: true}},
		"of a slice": {part: action.PartMIG, want: phase.Validation{Leftover: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &nodeObservation{Observation: nodestate.Observation{GPUNode: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}}
			r := New(Config{Cluster: action.Cluster{Namespace: controllertest.Namespace}})
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Cluster.Namespace, Name: action.ValidationName("n", test.part), CreationTimestamp: made,
				Labels: map[string]string{render.LabelName: render.OperandValidation}, Annotations: map[string]string{action.AnnotationBarrier: s.barrier()},
			}}
			if test.change != nil {
				test.change(claim)
			}
			cached, err := informers.TrimClaim(r.Cluster.Namespace)(claim)
			if err != nil {
				t.Fatal(err)
			}
			kept := cached.(*resourceapi.ResourceClaim)
			kept.Finalizers = claim.Finalizers // the fake keeps nothing that goes without
			r.Cluster.Client = controllertest.NewPlainClient(t, kept)
			got, err := r.readValidation(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Since.Equal(test.want.Since) {
				t.Errorf("since %v, want %v", got.Since, test.want.Since)
			}
			if got.Since = test.want.Since; got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
