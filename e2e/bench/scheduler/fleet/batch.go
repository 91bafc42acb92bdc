package fleet

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SchedulerName is the profile that the pods name.
const SchedulerName = "bench"

// requestName is the name of the only request of every claim.
const requestName = "gpu"

// Mix is the kind of the pods' requests.
type Mix string

// The mixes.
const (
	// Mixed pods request a MIG device of 1, 2 or 3 parts in eight of ten cases, and a whole GPU
	// otherwise.
	Mixed Mix = "mixed"
	// Whole pods request a whole GPU each.
	Whole Mix = "whole"
	// Plain pods have no claims.
	Plain Mix = "plain"
	// Worst pods have claims with the most requests and alternatives, which no node can serve.
	Worst Mix = "worst"
)

// classes are the DeviceClasses of the mix, each as often as its share.
func (m Mix) classes() []string {
	const small, medium, large = "mig-1g.10gb.tessera.dev", "mig-2g.20gb.tessera.dev", "mig-3g.40gb.tessera.dev"
	switch m {
	case Mixed:
		return []string{small, small, small, small, medium, medium, large, large, Driver, Driver}
	case Whole, Worst:
		return []string{Driver}
	case Plain:
	}
	return nil
}

// Batch is pods that are created together.
type Batch struct {
	Name string
	Pods int
	Mix  Mix
}

// Unit is a pod and its claim, nil for a plain pod.
type Unit struct {
	Pod   *corev1.Pod
	Claim *resourceapi.ResourceClaim
}

// Units are the pods of the batch, in a random order that is always the same.
func (b Batch) Units() []Unit {
	random := rand.New(rand.NewPCG(seed, uint64(b.Pods)))
	classes := b.Mix.classes()
	units := make([]Unit, b.Pods)
	for i := range units {
		name := fmt.Sprintf("%s-%04d", b.Name, i)
		units[i].Pod = pod(name)
		if len(classes) == 0 {
			continue
		}
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID("claim-" + name)}}
		claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{request(classes[random.IntN(len(classes))], 1)}
		if b.Mix == Worst {
			claim.Spec.Devices.Requests = worstRequests(i)
		}
		units[i].Claim = claim
		units[i].Pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: requestName, ResourceClaimName: &name}}
		units[i].Pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: requestName}}
	}
	return units
}

func request(class string, devices int) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: requestName, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: int64(devices),
	}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID("pod-" + name)},
		Spec: corev1.PodSpec{SchedulerName: SchedulerName, Containers: []corev1.Container{{
			Name: "main", Image: "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}},
		}}},
	}
}
