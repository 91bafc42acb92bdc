package v1alpha1

// HardwareStatus is what the discovery reads on the node. It does not require a driver.
type HardwareStatus struct {
	// BootID is the boot of the report.
	BootID string `json:"bootID"`
	// GPUs is the number of NVIDIA's display and 3D controllers on the PCI bus.
	GPUs int32 `json:"gpus"`
	// PCI are their PCI device IDs, such as 2330, each once, in order.
	// +optional
	// +listType=atomic
	PCI []string `json:"pci,omitempty"`
	// Mode is compute for 3D controllers, graphics for display controllers, and unknown for both.
	// +optional
	Mode string `json:"mode,omitempty"`
	// Machine is the product name of the machine from its firmware. Empty: none.
	// +optional
	Machine string `json:"machine,omitempty"`
	// Kernel is the release of the running kernel. It is part of the tags of driver images.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._+~-]*)?$`
	Kernel string `json:"kernel"`
	// OS is the operating system as in the tags of driver images, such as ubuntu24.04.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9._-]*)?$`
	OS string `json:"os"`
	// OSName is the PRETTY_NAME of the operating system.
	// +optional
	OSName string `json:"osName,omitempty"`
	// Architecture is the GOARCH of the node.
	Architecture string `json:"architecture"`
	// SecureBoot reports whether the kernel loads signed modules only.
	// +optional
	SecureBoot bool `json:"secureBoot,omitempty"`
	// HostDriver is the version of the driver that is installed on the host. Empty: none.
	// +optional
	HostDriver string `json:"hostDriver,omitempty"`
	// LoadedDriver is the version of the loaded kernel modules. Empty: none.
	// +optional
	LoadedDriver string `json:"loadedDriver,omitempty"`
	// Runtime is the container runtime with its version, such as containerd://2.2.1.
	// +optional
	Runtime string `json:"runtime,omitempty"`
	// CDI reports whether CDI is enabled in the configuration of the runtime.
	// +optional
	CDI bool `json:"cdi,omitempty"`
	// NVIDIARuntime is the name of the runtime's default handler if that is NVIDIA's container runtime: containers whose image or pod sets
	// NVIDIA_VISIBLE_DEVICES then get GPUs without a claim. Empty: it is not, or the configuration cannot be read.
	// +optional
	NVIDIARuntime string `json:"nvidiaRuntime,omitempty"`
}
