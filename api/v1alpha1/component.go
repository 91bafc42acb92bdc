package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Component is the configuration that every operand has. An absent field has the installer's default.
type Component struct {
	// Enabled deploys the component. If it is set to false, the installer deletes the component's objects, and no others.
	// For the default see the field of the component.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Image is the full reference of the image, with a tag or a digest. Empty, the default, selects the image of the
	// installer's release.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^\s]+$`
	Image string `json:"image,omitempty"`
	// ImagePullPolicy is the pull policy for the image. The default is that of Kubernetes for the image's tag.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets are names of Secrets in the installer's namespace, in addition to those of spec.daemonSets.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:MinLength=1
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// Resources are the requests and limits of the component's main container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Env is added to the environment of the component's main container. It overrides variables that the installer sets.
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

// On reports whether a component that is on by default is deployed.
func (c Component) On() bool { return c.Enabled == nil || *c.Enabled }

// Chosen reports whether a component that is off by default is deployed.
func (c Component) Chosen() bool { return c.Enabled != nil && *c.Enabled }
