package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels and annotations of objects and pods.
const (
	// LabelManagedBy with the value ManagedBy is set on every object that the installer creates, and not on pods of DaemonSets and Deployments.
	LabelManagedBy = "tessera.dev/managed-by"
	ManagedBy      = "tessera-installer"
	// AnnotationHash is the hash of the rendered object, or of the pod template for a driver's DaemonSet. An object with an equal hash is not
	// written.
	AnnotationHash = "tessera.dev/hash"
	// AnnotationDigest on a driver pod is the digest of the driver.
	AnnotationDigest = "tessera.dev/digest"
	// AnnotationConfig on a pod is the hash of its configuration. A change recreates the pods.
	AnnotationConfig = "tessera.dev/config-hash"

	labelPartOf = "app.kubernetes.io/part-of"
	partOf      = "tessera"
)

// named returns the metadata of a namespaced object.
func named(in Input, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: in.Namespace}
}

// kind returns the type of an object, which server-side apply requires.
func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// finish sets the common labels and annotations of an object, and then its hash.
func finish(in Input, operand string, object client.Object) error {
	if err := checkImages(object); err != nil {
		return err
	}
	object.SetLabels(merged(in.Policy.Spec.DaemonSets.Labels, object.GetLabels(),
		map[string]string{LabelName: operand, labelPartOf: partOf, LabelManagedBy: ManagedBy}))
	if annotations := merged(in.Policy.Spec.DaemonSets.Annotations, object.GetAnnotations()); len(annotations) > 0 {
		object.SetAnnotations(annotations)
	}
	text, err := json.Marshal(hashed(operand, object))
	if err != nil {
		return fmt.Errorf("hash %s: %w", object.GetName(), err)
	}
	object.SetAnnotations(merged(object.GetAnnotations(), map[string]string{AnnotationHash: hash(string(text))}))
	return nil
}

// hashed returns the input of an object's hash. For a driver's DaemonSet it is the pod template, because the owners that share it change.
func hashed(operand string, object client.Object) any {
	if set, ok := object.(*appsv1.DaemonSet); ok && (IsDriver(operand)) {
		return set.Spec.Template.Spec
	}
	return object
}

// checkImages rejects an object with a container without an image: neither the release nor the policy has one.
func checkImages(object client.Object) error {
	var pod corev1.PodSpec
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		pod = o.Spec.Template.Spec
	case *appsv1.Deployment:
		pod = o.Spec.Template.Spec
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for _, c := range containers {
			if c.Image == "" {
				return fmt.Errorf("%s: the release has no image for the container %s: name one in the policy", object.GetName(), c.Name)
			}
		}
	}
	return nil
}

// merged returns the union of the maps; later maps take precedence.
func merged(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, m := range all {
		maps.Copy(sum, m)
	}
	return sum
}

// hash returns a short hash of a text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
