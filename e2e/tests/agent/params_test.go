package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/tests/corpus"
)

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// TestParametersAtAdmission checks that the admission policy, in a real API server, gives the verdicts of the corpus,
// which the agent's code must also give.
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
				want := c.Refusal(kind == "class")
				refused := want != "" && c.Unseen == ""
				switch {
				case !refused && err != nil:
					t.Errorf("%s: %v", kind, err)
				case refused && err == nil:
					t.Errorf("%s is accepted, want %q", kind, want)
				case refused && c.Server == "" && (!strings.Contains(err.Error(), want) || !apierrors.IsInvalid(err)):
					t.Errorf("%s: %v, want %q", kind, err, want)
				}
			}
		})
	}
	t.Run("nothing at all", func(t *testing.T) { empty(t) })
	t.Run("what was there before", func(t *testing.T) { changes(t, old) })
	t.Run("as much as a claim can hold", func(t *testing.T) { large(t) })
}

// admitted creates the objects of the case in the API server and returns the errors.
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

// empty checks that the policy accepts objects without parameters.
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

// before returns a class with invalid parameters that was created before the policy.
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

// changes checks that an object with invalid parameters can be labeled, and that its parameters cannot be changed to
// other invalid ones.
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

// large checks that the policy's cost budget suffices for the largest claim, with a valid or invalid last
// configuration.
func large(t *testing.T) {
	claim, err := corpus.Large().Claim()
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

// installPolicy applies the policy as shipped until the test ends, and waits until it is in effect. At the end it waits
// until it is not in effect any more, so that the next test does not observe the old one.
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
	client := newObjects(t)
	t.Cleanup(func() {
		client.delete(t, objects)
		awaitPolicy(context.Background(), t, func(err error) error { return err })
	})
	for _, object := range objects {
		if err := client.apply(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	awaitPolicy(t.Context(), t, func(err error) error {
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("the policy does not refuse wrong parameters: %w", err)
		}
		return nil
	})
}

// awaitPolicy waits until the response to invalid parameters satisfies right.
func awaitPolicy(ctx context.Context, t *testing.T, right func(error) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	claim, err := corpus.Case{Ours: map[string]any{"kind": "Probe"}}.Claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, func(ctx context.Context) error {
		_, err := shared.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim, dryRun)
		return right(err)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNVIDIAComponent applies the kustomize build with the component for NVIDIA's driver name, and checks that the API
// server gives the verdicts that the examples for that driver expect.
func TestNVIDIAComponent(t *testing.T) {
	list, err := cluster.WithComponents(t.Context(), "nvidia")
	if err != nil {
		t.Fatal(err)
	}
	installPolicy(t)
	client := newObjects(t)
	for _, object := range list {
		dry := []string{metav1.DryRunAll}
		if object.GetKind() == "Namespace" { // must exist before the objects in it
			dry = nil
		}
		if err := client.apply(t.Context(), object, dry...); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(source, "deployments", "nvidia", "examples", "*.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := cluster.Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects {
				var expected struct{ Phase, Reason string }
				if err := yaml.Unmarshal([]byte(object.GetAnnotations()["tessera.dev/expect"]), &expected); err != nil {
					t.Fatal(err)
				}
				err := client.apply(t.Context(), object, metav1.DryRunAll)
				switch refused := expected.Phase == "Refused"; {
				case !refused && err != nil:
					t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
				case refused && (err == nil || !strings.Contains(err.Error(), expected.Reason)):
					t.Errorf("%s %s: %v, want %q", object.GetKind(), object.GetName(), err, expected.Reason)
				}
			}
		})
	}
}

// objects writes objects of any kind.
type objects struct {
	mapper  meta.RESTMapper
	dynamic dynamic.Interface
}

func newObjects(t *testing.T) objects {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(shared.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return objects{restmapper.NewDiscoveryRESTMapper(groups), client}
}

func (o objects) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return o.dynamic.Resource(mapping.Resource), nil
	}
	return o.dynamic.Resource(mapping.Resource).Namespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)), nil
}

func (o objects) apply(ctx context.Context, object *unstructured.Unstructured, dryRun ...string) error {
	resource, err := o.resource(object)
	if err != nil {
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "agent-test", Force: true, DryRun: dryRun})
	return err
}

// delete deletes the objects in reverse order.
func (o objects) delete(t *testing.T, list []*unstructured.Unstructured) {
	for _, object := range slices.Backward(list) {
		resource, err := o.resource(object)
		if err == nil {
			err = resource.Delete(context.Background(), object.GetName(), metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}
