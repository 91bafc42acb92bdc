package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

const (
	monitorAccount = "tessera-monitor"
	enginePort     = 5555
	gpusClaim      = "gpus"
)

// dcgm returns the host engine that exporters and tools of a node share.
func dcgm(in Input) ([]client.Object, error) {
	component := in.Policy.Spec.DCGM
	if !component.Chosen() {
		return nil, nil
	}
	w := workload{
		operand: OperandDCGM, name: OperandDCGM, component: component, image: cmp.Or(component.Image, in.Images.DCGM),
		pod: monitor(in, "dcgm", OperandDCGM, corev1.Container{
			Name: "nvidia-dcgm-ctr", SecurityContext: profiling(),
			Ports: []corev1.ContainerPort{{Name: "dcgm", ContainerPort: enginePort}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("dcgm")}},
				PeriodSeconds: monitorProbeSeconds,
			},
			Resources: requests("20m", "128Mi"),
		}),
	}
	return []client.Object{
		w.daemonSet(in, rolling()), localService(in, OperandDCGM, corev1.ServicePort{Name: "dcgm", Port: enginePort}), monitorClaim(in, OperandDCGM),
	}, nil
}

// monitor returns the pod of an operand that monitors all GPUs of a ready node with an adminAccess claim, which leaves them available. It runs as
// root: kubelet's sockets and the device nodes of some drivers are accessible only to root.
func monitor(in Input, component, name string, c corev1.Container) corev1.PodSpec {
	c.Resources.Claims = []corev1.ResourceClaim{{Name: gpusClaim}}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "tmp", MountPath: "/tmp"}, corev1.VolumeMount{Name: "log", MountPath: "/var/log"}, corev1.VolumeMount{Name: "run", MountPath: "/var/run"})
	return corev1.PodSpec{
		ServiceAccountName:           monitorAccount,
		SchedulerName:                SchedulerOfDevices(in.Policy.Spec),
		AutomountServiceAccountToken: new(false),
		NodeSelector:                 map[string]string{v1alpha1.LabelReady: "true"},
		Affinity:                     required(append(notOptedOut(component), monitored()...)),
		SecurityContext:              &corev1.PodSecurityContext{RunAsUser: new(int64(0))},
		ResourceClaims:               []corev1.PodResourceClaim{{Name: gpusClaim, ResourceClaimTemplateName: &name}},
		Containers:                   []corev1.Container{c},
		Volumes:                      []corev1.Volume{scratch("tmp"), scratch("log"), scratch("run")},
	}
}

// monitored returns the node requirements of such claims: an agent that offers the shape monitor. Nodes with the vGPU host driver have no agent, and the agent
// of nodes for virtual machines has no such device.
func monitored() []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{
		{Key: v1alpha1.LabelAgent, Operator: corev1.NodeSelectorOpExists},
		{Key: v1alpha1.LabelAgent, Operator: corev1.NodeSelectorOpNotIn, Values: []string{PoolSandbox}},
	}
}

// monitorClaim returns the ResourceClaimTemplate of such claims.
func monitorClaim(in Input, name string) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		TypeMeta: kind("resource.k8s.io/v1", "ResourceClaimTemplate"), ObjectMeta: named(in, name),
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: gpusClaim, Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "monitor.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeAll, AdminAccess: new(true),
			}}},
		}}},
	}
}

// localService returns a Service that routes to the pod on the same node.
func localService(in Input, operand string, port corev1.ServicePort) *corev1.Service {
	port.TargetPort = intstr.FromString(port.Name)
	return &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: named(in, operand),
		Spec: corev1.ServiceSpec{
			Selector: workload{operand: operand}.selector().MatchLabels, Ports: []corev1.ServicePort{port},
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal),
		},
	}
}
