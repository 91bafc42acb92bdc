package verify

import (
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// manifests returns every object in the folder of manifests, by file. An unknown field is an error.
func manifests(t *testing.T, folder string) map[string][]runtime.Object {
	t.Helper()
	objects := map[string][]runtime.Object{}
	files(t, func(file, text string) {
		if path.Dir(file) == folder && path.Base(file) != "kustomization.yaml" && path.Base(file) != "config.yaml" {
			objects[path.Base(file)] = decode(t, file, text)
		}
	}, ".yaml")
	return objects
}

// decode returns the objects of one manifest.
func decode(t *testing.T, file, text string) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []runtime.Object
	for {
		var document runtime.RawExtension
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object, _, err := decoder.Decode(document.Raw, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		objects = append(objects, object)
	}
}

// find returns the objects of one type.
func find[T runtime.Object](objects map[string][]runtime.Object) []T {
	var found []T
	for _, file := range objects {
		for _, object := range file {
			if typed, ok := object.(T); ok {
				found = append(found, typed)
			}
		}
	}
	return found
}

// one returns the only object of its type.
func one[T runtime.Object](t *testing.T, objects map[string][]runtime.Object) T {
	t.Helper()
	found := find[T](objects)
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want one", len(found), *new(T))
	}
	return found[0]
}

// named returns the object of its type and name.
func named[T interface {
	runtime.Object
	GetName() string
}](t *testing.T, objects map[string][]runtime.Object, name string) T {
	t.Helper()
	for _, object := range find[T](objects) {
		if object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %T %s", *new(T), name)
	return *new(T)
}

func TestKustomizationHasEveryManifest(t *testing.T) {
	var listed []string
	files(t, func(file, text string) {
		if file != "deployments/kustomization.yaml" {
			return
		}
		var kustomization struct{ Resources []string }
		if err := sigsyaml.Unmarshal([]byte(text), &kustomization); err != nil {
			t.Fatal(err)
		}
		listed = kustomization.Resources
	}, ".yaml")
	var there []string
	for file := range manifests(t, "deployments") {
		there = append(there, file)
	}
	slices.Sort(listed)
	slices.Sort(there)
	if diff := cmp.Diff(there, listed); diff != "" {
		t.Errorf("resources of the kustomization (-files +listed):\n%s", diff)
	}
}

// TestAgentHasNoOtherRights writes the agent's permissions out a second time, so that an extension fails
// the test.
func TestAgentHasNoOtherRights(t *testing.T) {
	objects := manifests(t, "deployments")
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/driver"}, ResourceNames: []string{v1alpha1.DriverName}, Verbs: []string{"associated-node:patch", "associated-node:update"}},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
	binding := one[*rbacv1.ClusterRoleBinding](t, objects)
	if diff := cmp.Diff(want, named[*rbacv1.ClusterRole](t, objects, binding.RoleRef.Name).Rules); diff != "" {
		t.Errorf("rules of the agent (-want +got):\n%s", diff)
	}
	want = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "create", "delete"}}}
	role := one[*rbacv1.Role](t, objects)
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("rules of the agent in its namespace (-want +got):\n%s", diff)
	}
	if bound := one[*rbacv1.RoleBinding](t, objects); bound.RoleRef.Name != role.Name || bound.Namespace != role.Namespace {
		t.Errorf("the rules are not bound: %+v", bound)
	}
	account := one[*corev1.ServiceAccount](t, objects)
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}, binding.Subjects); diff != "" {
		t.Errorf("holders of the agent's rights (-want +got):\n%s", diff)
	}
	if got := one[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.ServiceAccountName; got != account.Name {
		t.Errorf("the DaemonSet runs as %q, want %q", got, account.Name)
	}
}

func TestDaemonSetOverlapsItself(t *testing.T) {
	daemonSet := one[*appsv1.DaemonSet](t, manifests(t, "deployments"))
	update := daemonSet.Spec.UpdateStrategy
	surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	if diff := cmp.Diff(&appsv1.RollingUpdateDaemonSet{MaxSurge: &surge, MaxUnavailable: &unavailable}, update.RollingUpdate); diff != "" {
		t.Errorf("update strategy (-want +got):\n%s", diff)
	}
	pod := daemonSet.Spec.Template.Spec
	if pod.HostNetwork {
		t.Error("two pods on the host's network cannot overlap: their ports collide")
	}
	for _, container := range pod.Containers {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				t.Errorf("container %s takes host port %d: the second pod would not start", container.Name, port.HostPort)
			}
		}
		for _, mount := range container.VolumeMounts {
			if strings.HasPrefix(container.TerminationMessagePath, mount.MountPath+"/") {
				t.Errorf("container %s: %s lies on the host, in the mount %s", container.Name, container.TerminationMessagePath, mount.Name)
			}
		}
	}
}

func TestNodeConfigIsValid(t *testing.T) {
	config := one[*corev1.ConfigMap](t, manifests(t, "deployments"))
	if _, err := v1alpha1.Load([]byte(config.Data["node.yaml"])); err != nil {
		t.Error(err)
	}
}
