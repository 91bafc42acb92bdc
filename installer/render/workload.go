package render

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// workload has the specific parts of an operand's pods. All others come from its component and from the settings common to all operands.
type workload struct {
	// operand is the label app.kubernetes.io/name, name the name of the object.
	operand, name string
	// variant has additional labels of the pods.
	variant map[string]string
	// apart reports whether the variant is part of the selector, for operands with several objects.
	apart bool
	// component has the policy's settings, image the main container's image: the component's or the release's.
	component v1alpha1.Component
	image     string
	// annotations are those of the pods.
	annotations map[string]string
	// pod is the pod; its first container is the main one.
	pod corev1.PodSpec
}

// selector returns the pod selector of the object.
func (w workload) selector() *metav1.LabelSelector {
	labels := map[string]string{LabelName: w.operand}
	if w.apart {
		labels = merged(labels, w.variant)
	}
	return &metav1.LabelSelector{MatchLabels: labels}
}

// template returns the pod template.
func (w workload) template(in Input) corev1.PodTemplateSpec {
	common := in.Policy.Spec.DaemonSets
	pod := w.pod.DeepCopy()
	pod.ImagePullSecrets = secrets(common.ImagePullSecrets, w.component.ImagePullSecrets)
	pod.Tolerations = union(pod.Tolerations, w.component.Tolerations)
	apply(&pod.Containers[0], w.component, w.image)
	meta := metav1.ObjectMeta{Labels: merged(common.Labels, w.variant, map[string]string{LabelName: w.operand, labelPartOf: partOf})}
	if annotations := merged(common.Annotations, w.annotations); len(annotations) > 0 {
		meta.Annotations = annotations
	}
	return corev1.PodTemplateSpec{ObjectMeta: meta, Spec: *pod}
}

// daemonSet returns the DaemonSet of a workload, with the settings common to all operands on nodes.
func (w workload) daemonSet(in Input, strategy appsv1.DaemonSetUpdateStrategy) *appsv1.DaemonSet {
	common := in.Policy.Spec.DaemonSets
	w.pod.PriorityClassName = common.PriorityClassName
	w.pod.Tolerations = common.Tolerations
	w.pod.NodeSelector = merged(map[string]string{corev1.LabelOSStable: "linux"}, w.pod.NodeSelector)
	return &appsv1.DaemonSet{
		TypeMeta:   kind("apps/v1", "DaemonSet"),
		ObjectMeta: named(in, w.name),
		Spec:       appsv1.DaemonSetSpec{Selector: w.selector(), UpdateStrategy: strategy, Template: w.template(in)},
	}
}

// apply sets a container's image and the policy's settings.
func apply(c *corev1.Container, decided v1alpha1.Component, image string) {
	c.Image = image
	c.ImagePullPolicy = decided.ImagePullPolicy
	c.Args = append(slices.Clip(c.Args), decided.Args...)
	for _, e := range decided.Env {
		i := slices.IndexFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == e.Name })
		if i < 0 {
			c.Env = append(c.Env, e)
			continue
		}
		c.Env[i] = e
	}
	if decided.Resources != nil {
		claims := c.Resources.Claims
		c.Resources = *decided.Resources.DeepCopy()
		c.Resources.Claims = append(claims, c.Resources.Claims...)
	}
}

// secrets returns deduplicated references to Secrets.
func secrets(names ...[]string) []corev1.LocalObjectReference {
	var all []corev1.LocalObjectReference
	for _, name := range slices.Concat(names...) {
		if ref := (corev1.LocalObjectReference{Name: name}); !slices.Contains(all, ref) {
			all = append(all, ref)
		}
	}
	return all
}

// union returns the deduplicated tolerations of both lists.
func union(a, b []corev1.Toleration) []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range slices.Concat(a, b) {
		if !slices.ContainsFunc(all, func(other corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, other) }) {
			all = append(all, t)
		}
	}
	return all
}

// rolling replaces pods on one tenth of the nodes at a time. It is for operands that only serve metrics and discovery.
func rolling() appsv1.DaemonSetUpdateStrategy {
	return appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(percent("10%"))},
	}
}
