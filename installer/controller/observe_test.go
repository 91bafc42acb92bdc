package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
	"github.com/tessera-gpu/tessera/installer/render"
)

// A node is refused for what hands its GPUs out, not for whatever else NVIDIA's device plugins offer.
func TestDevicePluginsOfGPUs(t *testing.T) {
	tests := map[string]struct {
		offered string
		sandbox bool
		want    string
	}{
		"GPUs":                                  {offered: "nvidia.com/gpu", want: "nvidia.com/gpu"},
		"shared GPUs":                           {offered: "nvidia.com/gpu.shared", want: "nvidia.com/gpu.shared"},
		"slices":                                {offered: "nvidia.com/mig-1g.10gb", want: "nvidia.com/mig-1g.10gb"},
		"network cards":                         {offered: "nvidia.com/hostdev"},
		"network cards of a name of somebody's": {offered: "nvidia.com/gpudirect_nics"},
		"GPUs of others":                        {offered: "amd.com/gpu"},
		"virtual GPUs":                          {offered: "nvidia.com/GRID_T4-1Q", sandbox: true, want: "nvidia.com/GRID_T4-1Q"},
		"GPUs for virtual machines":             {offered: "nvidia.com/pgpu", sandbox: true, want: "nvidia.com/pgpu"},
		"what is for virtual machines, on another": {offered: "nvidia.com/pgpu"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kept, err := TrimNode(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceName(test.offered): resource.MustParse("8"),
				"nvidia.com/gpu.none":             resource.MustParse("0"),
			}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := devicePluginResources(kept.(*corev1.Node), Assignment{Sandbox: test.sandbox}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Users who take the GPUs before a slice is proven do not make the node fail: all of its GPUs prove it.
func TestUsersOutrunTheProofOfSlices(t *testing.T) {
	tests := map[string]struct {
		users     int
		allocated bool
		gpus, mig corev1.PodPhase
		want      phase.ValidationState
	}{
		"users were first":                        {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationPassed},
		"users were first, and a GPU is broken":   {users: 1, gpus: corev1.PodFailed, mig: corev1.PodPending, want: phase.ValidationFailed},
		"nobody is there":                         {gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationRunning},
		"the slice is allocated":                  {users: 1, allocated: true, gpus: corev1.PodSucceeded, mig: corev1.PodPending, want: phase.ValidationRunning},
		"the slice does not compute":              {users: 1, allocated: true, gpus: corev1.PodSucceeded, mig: corev1.PodFailed, want: phase.ValidationFailed},
		"the slice did not compute, and is free":  {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodFailed, want: phase.ValidationFailed},
		"users were first, and GPUs are at work":  {users: 1, gpus: corev1.PodRunning, mig: corev1.PodPending, want: phase.ValidationRunning},
		"slice and GPUs compute, users come then": {users: 1, gpus: corev1.PodSucceeded, mig: corev1.PodSucceeded, want: phase.ValidationPassed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &nodeObservation{GPUNode: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, claims: test.users}
			r := &nodeReconciler{Cluster: action.Cluster{Namespace: "tessera-system"}}
			var objects []client.Object
			for part, state := range map[action.ValidationPart]corev1.PodPhase{action.PartGPUs: test.gpus, action.PartMIG: test.mig} {
				meta := metav1.ObjectMeta{
					Namespace: r.Namespace, Name: action.ValidationName("n", part), CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
					Annotations: map[string]string{action.AnnotationBarrier: s.barrier()},
				}
				claim := &resourceapi.ResourceClaim{ObjectMeta: meta}
				if test.allocated || part == action.PartGPUs {
					claim.Status.Allocation = &resourceapi.AllocationResult{}
				}
				objects = append(objects, claim, &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: state}})
			}
			r.Client = fakeClient(t, objects...)
			got, err := s.validation(t.Context(), r)
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
			s := &nodeObservation{GPUNode: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
			r := &nodeReconciler{Cluster: action.Cluster{Namespace: "tessera-system"}}
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Namespace, Name: action.ValidationName("n", test.part), CreationTimestamp: made,
				Labels: map[string]string{render.LabelName: render.OperandValidation}, Annotations: map[string]string{action.AnnotationBarrier: s.barrier()},
			}}
			if test.change != nil {
				test.change(claim)
			}
			cached, err := TrimClaim(r.Namespace)(claim)
			if err != nil {
				t.Fatal(err)
			}
			kept := cached.(*resourceapi.ResourceClaim)
			kept.Finalizers = claim.Finalizers // the fake keeps nothing that goes without
			r.Client = fakeClient(t, kept)
			got, err := s.validation(t.Context(), r)
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
