package plugin_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestClaimLeftByACrash starts a scheduler with a claim for extended resources that was created before a crash and
// never allocated.
func TestClaimLeftByACrash(t *testing.T) {
	pod := wants("a", "nvidia.com/mig-1g.10gb", 1)
	pod.UID = "uid-of-a"
	claim := claimFor("a-extended-resources", "1g.10gb", 1)
	claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	claim.Finalizers = []string{resourceapi.Finalizer}
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	c := newCluster(t, "", slices.Concat(machines(t, "h100x2", 1), []runtime.Object{claim, pod})...)
	c.bound("a")
	status := c.pod("a").Status.ExtendedResourceClaimStatus
	if status == nil || status.ResourceClaimName == claim.Name {
		t.Fatalf("the pod has %+v, want a new claim", status)
	}
	if got := devices(c.claim(status.ResourceClaimName)); len(got) != 1 {
		t.Errorf("the pod holds %q, want one device", got)
	}
}

// TestForgedClaimIsIgnored schedules pods for which another user has created a claim with the annotation of extended
// resources and the pod as controller. The in-tree plugin ignores it if the pod requests no extended resources, or if the
// owner has another name: then the pod runs.
func TestForgedClaimIsIgnored(t *testing.T) {
	pods := map[string]*corev1.Pod{
		"a pod with a claim":              newPod("a", "a"),
		"a pod with an extended resource": wants("a", "nvidia.com/gpu", 1),
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			pod.UID = "uid-of-a"
			forged := claimFor("forged", "1g.10gb", 1)
			forged.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
			forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
			if len(pod.Spec.ResourceClaims) == 0 {
				forged.OwnerReferences[0].Name = "b"
			}
			objects := slices.Concat(machines(t, "h100x2", 1), []runtime.Object{forged, claimFor("a", "gpu", 1), pod})
			t.Run("tessera", func(t *testing.T) { newCluster(t, "", objects...).bound("a") })
			t.Run("in-tree", func(t *testing.T) { newStockCluster(t, objects...).bound("a") })
		})
	}
}
