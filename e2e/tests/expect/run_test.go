package expect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// applier creates pods and answers for everything else as it is told, a call at a time.
type applier struct {
	client  *fake.Clientset
	answers map[string][]error
	applied []string
}

func (a *applier) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		name := object.GetName()
		a.applied = append(a.applied, name)
		if answers := a.answers[name]; len(answers) > 0 {
			a.answers[name] = answers[1:]
			if answers[0] != nil {
				return fmt.Errorf("apply %s: %w", name, answers[0])
			}
		}
		if object.GetKind() != "Pod" {
			continue
		}
		pod := testPod(name, nil)
		pod.Status.Phase = corev1.PodSucceeded
		if _, err := a.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

const threeObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: first}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: second
  annotations: {tessera.dev/expect: "{phase: Refused, reason: too many}"}
---
apiVersion: v1
kind: Pod
metadata:
  name: third
  annotations: {tessera.dev/expect: "log: fake"}
`

func TestRun(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", fmt.Errorf("%s", text))
	}
	const (
		uncounted = "status unknown for quota: q, resources: count/configmaps"
		homeless  = `error looking up service account default/default: serviceaccount "default" not found`
	)
	tests := map[string]struct {
		answers    map[string][]error
		applied    []string
		complaints string
		err        string
	}{
		"as expected":        {answers: map[string][]error{"second": {forbidden("too many")}}, applied: []string{"first", "second", "third"}},
		"not refused":        {applied: []string{"first", "second", "third"}, complaints: "expected Refused, is Accepted"},
		"for another reason": {answers: map[string][]error{"second": {forbidden("not yours")}}, applied: []string{"first", "second", "third"}, complaints: "not yours"},
		"a quota that has not counted": {
			answers: map[string][]error{"first": {forbidden(uncounted), nil}, "second": {forbidden(uncounted), forbidden("too many")}},
			applied: []string{"first", "first", "second", "second", "third"},
		},
		"an account that is still to be made": {
			answers: map[string][]error{"second": {forbidden("too many")}, "third": {forbidden(homeless), nil}},
			applied: []string{"first", "second", "third", "third"},
		},
		"the wrong one is refused": {
			answers: map[string][]error{"first": {forbidden("not yours")}}, applied: []string{"first"},
			err: `run x.yaml: configmap default/first is refused: configmaps "x" is forbidden: not yours`,
		},
		"a broken API server": {
			answers: map[string][]error{"second": {apierrors.NewInternalError(fmt.Errorf("no etcd"))}}, applied: []string{"first", "second"},
			err: "run x.yaml: apply second: Internal error occurred: no etcd",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			example, err := parseExample("x.yaml", threeObjects)
			if err != nil {
				t.Fatal(err)
			}
			to := &applier{client: fake.NewClientset(made()...), answers: test.answers}
			outcomes, err := newWatcher(t, to.client).Run(t.Context(), to, example)
			if test.err != "" && (err == nil || err.Error() != test.err) || test.err == "" && err != nil {
				t.Fatalf("error: got %v, want %q", err, test.err)
			}
			if !slices.Equal(to.applied, test.applied) {
				t.Errorf("applied: got %q, want %q", to.applied, test.applied)
			}
			var complaints []string
			for _, outcome := range outcomes {
				complaints = append(complaints, Compare(outcome, outcomes)...)
			}
			if got := strings.Join(complaints, "\n"); !strings.Contains(got, test.complaints) || (test.complaints == "" && got != "") {
				t.Errorf("complaints: got %q, want %q", got, test.complaints)
			}
		})
	}
}

// TestRunAwaitsQuota: what comes after a quota is applied when the API server refuses what exceeds it, which can be later than the status of the quota.
func TestRunAwaitsQuota(t *testing.T) {
	example, err := parseExample("x.yaml", `
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: after}
`)
	if err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1"), corev1.ResourceName("gpu" + corev1.ResourceClaimsPerClass): resource.MustParse("2")}},
	}
	to := &applier{client: fake.NewClientset(quota)}
	reads := 0
	to.client.PrependReactor("get", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		reads++
		read := quota.DeepCopy()
		if reads > 1 {
			read.Status.Hard = quota.Spec.Hard
		}
		return true, read, nil
	})
	refused := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "x", errors.New(text))
	}
	// The informer of the API server has no quota, then one without a status, then all of it.
	answers := []error{nil, refused("status unknown for quota: q, resources: gpu"), refused("exceeded quota: q, requested: 3, used: 0, limited: 2")}
	to.client.PrependReactor("create", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateActionImpl)
		if !ok || !slices.Equal(create.CreateOptions.DryRun, []string{metav1.DryRunAll}) {
			t.Errorf("not a dry run: %v", action)
		}
		claim, ok := create.Object.(*resourceapi.ResourceClaim)
		if !ok || claim.Spec.Devices.Requests[0].Exactly.DeviceClassName != "gpu" || claim.Spec.Devices.Requests[0].Exactly.Count != 3 {
			t.Errorf("the claim does not exceed the quota: %v", create.Object)
		}
		if slices.Contains(to.applied, "after") || len(answers) == 0 {
			t.Fatal("an object was applied before the quota is enforced, or the quota is checked again")
		}
		answer := answers[0]
		answers = answers[1:]
		return true, claim, answer
	})
	if _, err := newWatcher(t, to.client).Run(t.Context(), to, example); err != nil {
		t.Fatal(err)
	}
	if want := []string{"q", "after"}; !slices.Equal(to.applied, want) || len(answers) != 0 {
		t.Errorf("applied %q with %d checks left, want %q with none", to.applied, len(answers), want)
	}
}

// TestRunRefusesAQuotaThatCannotBeChecked: an example with a quota that claims cannot exceed ends with an error instead of a race.
func TestRunRefusesAQuotaThatCannotBeChecked(t *testing.T) {
	example, err := parseExample("x.yaml", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n")
	if err != nil {
		t.Fatal(err)
	}
	to := &applier{client: fake.NewClientset(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"}})}
	if _, err := newWatcher(t, to.client).Run(t.Context(), to, example); err == nil || !strings.Contains(err.Error(), "limits no devices") {
		t.Errorf("error: %v", err)
	}
}
