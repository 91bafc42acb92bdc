package render

import "sigs.k8s.io/controller-runtime/pkg/client"

// LabelName is the label with the name of an operand, on its objects and on its pods.
const LabelName = "app.kubernetes.io/name"

// Names of the operands that Objects returns.
const (
	OperandDiscovery         = "tessera-discovery"
	OperandDriver            = "tessera-driver"
	OperandVGPUManager       = "tessera-vgpu-manager"
	OperandVGPUDeviceManager = "tessera-vgpu-device-manager"
	OperandToolkit           = "tessera-toolkit"
	OperandNodeAgent         = "tessera-node"
	OperandScheduler         = "tessera-scheduler"
	OperandDCGM              = "tessera-dcgm"
	OperandDCGMExporter      = "tessera-dcgm-exporter"
)

// Names of objects that the installer creates for single nodes, and of the installer itself.
const (
	OperandValidation  = "tessera-validation"  // pods and claims that validate a node or a GPU
	OperandOperation   = "tessera-operation"   // the pod that changes the MIG mode of a node
	OperandMaintenance = "tessera-maintenance" // the DeviceTaintRule of a node
	OperandInstaller   = "tessera-installer"
)

// operand is a component that the installer deploys.
type operand struct {
	name string
	// objects returns the operand's objects; none if the policy disables it.
	objects func(Input) ([]client.Object, error)
}

// operands lists all operands in the order in which their objects are written.
func operands() []operand {
	return []operand{
		{OperandDiscovery, discovery},
		{OperandDriver, drivers},
		{OperandVGPUManager, vgpuManagers},
		{OperandVGPUDeviceManager, vgpuDeviceManager},
		{OperandToolkit, toolkit},
		{OperandNodeAgent, agents},
		{OperandScheduler, scheduler},
		{OperandDCGM, dcgm},
		{OperandDCGMExporter, exporter},
	}
}

// IsDriver reports whether an operand installs a driver on its nodes.
func IsDriver(operand string) bool { return operand == OperandDriver || operand == OperandVGPUManager }

// IsMonitoring reports whether an operand keeps GPUs open in order to monitor them.
func IsMonitoring(operand string) bool {
	return operand == OperandDCGM || operand == OperandDCGMExporter
}
