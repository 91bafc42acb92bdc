package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Component is what can be decided for each part that the installer deploys. Absent means the installer's default.
type Component struct {
	// Enabled deploys the component. Switching it off removes its objects and nothing else's.
	// The default is stated at the field that holds the component.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Image is the whole reference of the image, with tag or digest. Empty, the default, is the one that the
	// installer was released with.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\s]+$`
	Image string `json:"image,omitempty"`
	// ImagePullPolicy is kubelet's policy for Image; by default kubelet's own default for its tag.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets are names of Secrets in the installer's namespace, besides those of spec.daemonSets.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:MinLength=1
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// Resources are requests and limits of the component's main container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Env is added to the environment of the component's main container; a name that the installer sets itself is
	// overridden.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`
	// Args are added to the arguments of the component's main container.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Args []string `json:"args,omitempty"`
	// Tolerations are added to those of spec.daemonSets.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// On reports whether the component is deployed, when it is by default.
func (c Component) On() bool { return c.Enabled == nil || *c.Enabled }

// Chosen reports whether the component is deployed, when it is not by default.
func (c Component) Chosen() bool { return c.Enabled != nil && *c.Enabled }
