package bundle

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// redacted replaces removed values.
const redacted = "<redacted>"

// removeSensitive removes managedFields, kubectl's last-applied annotation and, in pods outside of Tessera's namespace, literal environment values. It
// modifies its argument.
func removeSensitive(object runtime.Object) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	m.SetManagedFields(nil)
	annotations := m.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	m.SetAnnotations(annotations)
	if pod, ok := object.(*corev1.Pod); ok && pod.Namespace != cluster.SystemNamespace {
		redactEnvironment(&pod.Spec)
	}
	return nil
}

// redactEnvironment replaces the literal environment values of all containers.
func redactEnvironment(spec *corev1.PodSpec) {
	hide := func(env []corev1.EnvVar) {
		for i := range env {
			if env[i].Value != "" {
				env[i].Value = redacted
			}
		}
	}
	for i := range spec.InitContainers {
		hide(spec.InitContainers[i].Env)
	}
	for i := range spec.Containers {
		hide(spec.Containers[i].Env)
	}
	for i := range spec.EphemeralContainers {
		hide(spec.EphemeralContainers[i].Env)
	}
}

// objectList is a List in the form of kubectl.
type objectList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []runtime.Object `json:"items"`
}

// marshalObjects returns the objects as one YAML List, each with its type and without sensitive fields.
func marshalObjects(objects []runtime.Object) ([]byte, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		return nil, err
	}
	all := objectList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.Object{}}
	for _, object := range objects {
		copied := object.DeepCopyObject()
		if err := removeSensitive(copied); err != nil {
			return nil, err
		}
		kinds, _, err := known.ObjectKinds(copied)
		if err != nil {
			return nil, fmt.Errorf("encode a %T: %w", copied, err)
		}
		copied.GetObjectKind().SetGroupVersionKind(kinds[0])
		all.Items = append(all.Items, copied)
	}
	return yaml.Marshal(all)
}

// listItems returns the items of a list.
func listItems(list runtime.Object, err error) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// toObjects returns the values as runtime objects.
func toObjects[T any, P interface {
	*T
	runtime.Object
}](found []T) []runtime.Object {
	var all []runtime.Object
	for i := range found {
		all = append(all, P(&found[i]))
	}
	return all
}

// filterObjects returns the selected objects.
func filterObjects(all []runtime.Object, selected func(metav1.Object) bool) []runtime.Object {
	kept := []runtime.Object{}
	for _, object := range all {
		if m, err := meta.Accessor(object); err == nil && selected(m) {
			kept = append(kept, object)
		}
	}
	return kept
}
