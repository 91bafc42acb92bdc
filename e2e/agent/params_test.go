package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/e2e/cluster"
	"github.com/tessera-gpu/tessera/e2e/corpus"
	"github.com/tessera-gpu/tessera/e2e/lab/binaries"
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// TestParametersAtAdmission holds the admission policy, in a real API server, to the verdicts of the
// corpus, to which the code of the agent is held too.
func TestParametersAtAdmission(t *testing.T) {
	cases, err := corpus.Load()
	if err != nil {
		t.Fatal(err)
	}
	old := before(t)
	installPolicy(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			for kind, err := range admitted(t, c) {
				refused := c.Refused != "" && c.Unseen == ""
				switch {
				case !refused && err != nil:
					t.Errorf("%s: %v", kind, err)
				case refused && err == nil:
					t.Errorf("%s is accepted, want %q", kind, c.Refused)
				case refused && c.Server == "" && (!strings.Contains(err.Error(), c.Refused) || !apierrors.IsInvalid(err)):
					t.Errorf("%s: %v, want %q", kind, err, c.Refused)
				}
			}
		})
	}
	t.Run("nothing at all", func(t *testing.T) { empty(t) })
	t.Run("what was there before", func(t *testing.T) { changes(t, old) })
	t.Run("as much as a claim can hold", func(t *testing.T) { large(t) })
}

// admitted asks the API server to create the objects of the case.
func admitted(t *testing.T, c corpus.Case) map[string]error {
	t.Helper()
	claim, failed := c.Claim()
	template, failedTemplate := c.Template()
	class, failedClass := c.DeviceClass()
	if err := errors.Join(failed, failedTemplate, failedClass); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]error{}
	_, verdicts["claim"] = shared.client.ResourceV1().ResourceClaims(claim.Namespace).Create(t.Context(), claim, dryRun)
	_, verdicts["template"] = shared.client.ResourceV1().ResourceClaimTemplates(template.Namespace).Create(t.Context(), template, dryRun)
	_, verdicts["class"] = shared.client.ResourceV1().DeviceClasses().Create(t.Context(), class, dryRun)
	return verdicts
}

// empty checks that the policy has nothing to say about objects without parameters.
func empty(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "empty", Namespace: metav1.NamespaceDefault}
	_, claim := shared.client.ResourceV1().ResourceClaims(meta.Namespace).Create(t.Context(), &resourceapi.ResourceClaim{ObjectMeta: meta}, dryRun)
	_, template := shared.client.ResourceV1().ResourceClaimTemplates(meta.Namespace).Create(t.Context(), &resourceapi.ResourceClaimTemplate{ObjectMeta: meta}, dryRun)
	meta.Namespace = ""
	_, class := shared.client.ResourceV1().DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: meta}, dryRun)
	if err := errors.Join(claim, template, class); err != nil {
		t.Error(err)
	}
}

// before returns a class with wrong parameters, made before there was a policy.
func before(t *testing.T) *resourceapi.DeviceClass {
	t.Helper()
	class, err := corpus.Case{Ours: map[string]any{"kind": "GPUConfig", "old": true}}.DeviceClass()
	if err != nil {
		t.Fatal(err)
	}
	class.Name = "old.example.com"
	class, err = shared.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.client.ResourceV1().DeviceClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return class
}

// changes checks that an object with wrong parameters can be labelled, and that its parameters cannot
// become wrong in another way.
func changes(t *testing.T, class *resourceapi.DeviceClass) {
	classes := shared.client.ResourceV1().DeviceClasses()
	class.Labels = map[string]string{"changed": "true"}
	class, err := classes.Update(t.Context(), class, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	class.Spec.Config[0].Opaque.Parameters.Raw = []byte(`{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig","new":true}`)
	if _, err := classes.Update(t.Context(), class, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "unknown field") {
		t.Errorf("new parameters: %v", err)
	}
}

// large checks that the policy's budget is enough for the largest claim, right or wrong in its last
// configuration.
func large(t *testing.T) {
	c := corpus.Case{NVIDIA: map[string]any{"kind": "GpuConfig", "sharing": map[string]any{"strategy": "MPS", "mpsConfig": map[string]any{
		"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "123456789.123k", "multiUser": true,
	}}}}
	claim, err := c.Claim()
	if err != nil {
		t.Fatal(err)
	}
	for len(claim.Spec.Devices.Config) < resourceapi.DeviceConfigMaxSize {
		claim.Spec.Devices.Config = append(claim.Spec.Devices.Config, claim.Spec.Devices.Config[0])
	}
	if _, err := shared.client.ResourceV1().ResourceClaims(claim.Namespace).Create(t.Context(), claim, dryRun); err != nil {
		t.Errorf("the largest claim: %v", err)
	}
	var fields strings.Builder
	for i := range 600 {
		fmt.Fprintf(&fields, `,"field-%d":0`, i)
	}
	last := claim.Spec.Devices.Config[len(claim.Spec.Devices.Config)-1].Opaque.DeepCopy()
	last.Parameters.Raw = []byte(`{"apiVersion":"gpu.tessera.dev/v1alpha1","kind":"GPUConfig"` + fields.String() + `}`)
	claim.Spec.Devices.Config[len(claim.Spec.Devices.Config)-1].Opaque = last
	if _, err := shared.client.ResourceV1().ResourceClaims(claim.Namespace).Create(t.Context(), claim, dryRun); err == nil || !strings.Contains(err.Error(), "GPUConfig: unknown field") {
		t.Errorf("the largest wrong claim: %v", err)
	}
}

// installPolicy applies the policy as it is shipped, until the test ends, and waits until it is in
// effect.
func installPolicy(t *testing.T) {
	t.Helper()
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(source, "deployments", "admission-params.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := cluster.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	registrations := shared.client.AdmissionregistrationV1()
	for _, object := range objects {
		switch object.GetKind() {
		case "ValidatingAdmissionPolicy":
			var policy admissionregistrationv1.ValidatingAdmissionPolicy
			err = errors.Join(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &policy, true), create(t, func(ctx context.Context) error {
				_, err := registrations.ValidatingAdmissionPolicies().Create(ctx, &policy, metav1.CreateOptions{})
				return err
			}, func(ctx context.Context) error {
				return registrations.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{})
			}))
		case "ValidatingAdmissionPolicyBinding":
			var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
			err = errors.Join(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &binding, true), create(t, func(ctx context.Context) error {
				_, err := registrations.ValidatingAdmissionPolicyBindings().Create(ctx, &binding, metav1.CreateOptions{})
				return err
			}, func(ctx context.Context) error {
				return registrations.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})
			}))
		default:
			err = fmt.Errorf("unexpected %s", object.GetKind())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	probe := corpus.Case{Ours: map[string]any{"kind": "Probe"}}
	if err := poll(ctx, func(ctx context.Context) error {
		claim, err := probe.Claim()
		if err != nil {
			return err
		}
		if _, err = shared.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, dryRun); err == nil {
			return errors.New("the policy refuses nothing")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// create makes something that is removed when the test ends.
func create(t *testing.T, makeIt, remove func(context.Context) error) error {
	t.Helper()
	if err := makeIt(t.Context()); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return nil
}
