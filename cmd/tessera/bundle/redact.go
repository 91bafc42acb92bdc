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

// redacted stands for what was left out.
const redacted = "<redacted>"

// tidy leaves out of an object what says nothing to a reader or may be a secret: the history of its
// fields, the copy of the manifest that kubectl keeps, and what a pod of somebody else carries in its
// environment. It changes its argument.
func tidy(object runtime.Object) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	m.SetManagedFields(nil)
	annotations := m.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	m.SetAnnotations(annotations)
	if pod, ok := object.(*corev1.Pod); ok && pod.Namespace != cluster.SystemNamespace {
		redact(&pod.Spec)
	}
	return nil
}

func redact(spec *corev1.PodSpec) {
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

// list is objects as kubectl writes several.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []runtime.Object `json:"items"`
}

// render writes the objects as one YAML list, each with its type and without what tidy leaves out.
func render(objects []runtime.Object) ([]byte, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		return nil, err
	}
	all := list{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.Object{}}
	for _, object := range objects {
		copied := object.DeepCopyObject()
		if err := tidy(copied); err != nil {
			return nil, err
		}
		kinds, _, err := known.ObjectKinds(copied)
		if err != nil {
			return nil, fmt.Errorf("write a %T: %w", copied, err)
		}
		copied.GetObjectKind().SetGroupVersionKind(kinds[0])
		all.Items = append(all.Items, copied)
	}
	return yaml.Marshal(all)
}

// objects returns the items of a list as objects.
func objects(list runtime.Object, err error) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// several returns the objects as objects of any kind.
func several[T any, P interface {
	*T
	runtime.Object
}](found []T) []runtime.Object {
	var all []runtime.Object
	for i := range found {
		all = append(all, P(&found[i]))
	}
	return all
}

// keep returns the objects that the function chooses.
func keep(all []runtime.Object, choose func(metav1.Object) bool) []runtime.Object {
	kept := []runtime.Object{}
	for _, object := range all {
		if m, err := meta.Accessor(object); err == nil && choose(m) {
			kept = append(kept, object)
		}
	}
	return kept
}
