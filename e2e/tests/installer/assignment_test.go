package installer

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// assignment is the policy that sets the scheduler of pods with devices, and its binding.
const assignment = "schedulername.gpu.tessera.dev"

// optedOut is a namespace whose pods keep their scheduler.
const optedOut = "opted-out"

// binding returns the manifest of the binding of a policy.
func binding(policy string) string {
	return fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %[1]s}}`, policy)
}

// optOut creates the namespace optedOut.
func (s *site) optOut(t *testing.T) {
	t.Helper()
	_, err := s.plane.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: optedOut, Labels: map[string]string{"gpu.tessera.dev/scheduler": "none"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// assigns tests the chart's policy in a real API server, after the installer has bound it: which pods it assigns to tessera-scheduler, and that it ends with
// its binding. No namespace opts in.
func (s *site) assigns(t *testing.T) {
	const tessera, stock, out = "tessera-scheduler", corev1.DefaultSchedulerName, optedOut
	claim := "claim"
	withClaim := corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: claim, ResourceClaimName: &claim}}, Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}
	limited := func(resources ...corev1.ResourceName) corev1.PodSpec {
		c := corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
		for _, name := range resources {
			c.Resources.Limits[name] = apiresource.MustParse("1")
		}
		return corev1.PodSpec{Containers: []corev1.Container{c}}
	}
	inInit := limited("nvidia.com/gpu")
	inInit.InitContainers = []corev1.Container{inInit.Containers[0]}
	inInit.Containers = []corev1.Container{{Name: "main", Image: "i"}}
	named := func(spec corev1.PodSpec, scheduler string) corev1.PodSpec {
		spec.SchedulerName = scheduler
		return spec
	}
	s.awaitScheduler(t, withClaim, tessera)
	for name, test := range map[string]struct {
		namespace string
		spec      corev1.PodSpec
		want      string
	}{
		"a claim":                       {foreign, withClaim, tessera},
		"a GPU of the device plugin's":  {foreign, limited("nvidia.com/gpu"), tessera},
		"a MIG device of the plugin's":  {foreign, limited("nvidia.com/mig-1g.10gb"), tessera},
		"a DeviceClass by its name":     {foreign, limited("deviceclass.resource.kubernetes.io/gpu.tessera.dev"), tessera},
		"a GPU of an init container":    {foreign, inInit, tessera},
		"no device":                     {foreign, limited("cpu"), stock},
		"another vendor's device":       {foreign, limited("amd.com/gpu"), stock},
		"another scheduler":             {foreign, named(withClaim, "volcano"), "volcano"},
		"default-scheduler, named":      {foreign, named(withClaim, stock), tessera}, // equals the API server's default
		"a namespace that opts out":     {out, withClaim, stock},
		"kube-system":                   {metav1.NamespaceSystem, withClaim, stock},
		"the namespace of the operands": {home, withClaim, stock},
	} {
		got, err := s.admitted(t.Context(), test.namespace, test.spec)
		if err != nil || got != test.want {
			t.Errorf("%s: the pod has the scheduler %q, want %q; error %v", name, got, test.want, err)
		}
	}
	if err := s.plane.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(t.Context(), assignment, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.awaitScheduler(t, withClaim, stock)
}

// admitted returns the scheduler of a pod after admission, by a dry run.
func (s *site) admitted(ctx context.Context, namespace string, spec corev1.PodSpec) (string, error) {
	// The account of a namespace is created by a controller that does not run.
	spec.AutomountServiceAccountToken = new(false)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: spec}
	pod, err := s.plane.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return pod.Spec.SchedulerName, err
}

// awaitScheduler waits until pods with a claim are admitted with the scheduler: the API server takes up a binding and its end a moment later.
func (s *site) awaitScheduler(t *testing.T, spec corev1.PodSpec, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := harness.Poll(ctx, func(ctx context.Context) error {
		got, err := s.admitted(ctx, foreign, spec)
		if err == nil && got != want {
			err = fmt.Errorf("a pod with a claim has the scheduler %q, not %q", got, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
