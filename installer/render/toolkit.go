package render

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// toolkit returns the DaemonSet that configures container runtimes to read CDI specs, on nodes whose runtime does not, and the RuntimeClass.
func toolkit(in Input) ([]client.Object, error) {
	spec := in.Policy.Spec.Toolkit
	if !spec.On() {
		return nil, nil
	}
	host := slices.Concat([]string{"host", "toolkit"}, rootFlags(in), runtimeFlags(in))
	w := workload{
		operand: OperandToolkit, name: OperandToolkit, component: spec.Component, image: cmp.Or(spec.Image, in.Images.Node),
		pod: corev1.PodSpec{
			// It needs no access to the API server.
			ServiceAccountName:           driverAccount,
			AutomountServiceAccountToken: new(false),
			NodeSelector:                 map[string]string{v1alpha1.LabelToolkit: "true"},
			HostPID:                      true, // to restart the runtime
			Containers: []corev1.Container{{
				Name:            "toolkit",
				Args:            append(slices.Clip(host), "--watch"),
				Env:             []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
				SecurityContext: privileged(),
				// Ready means that the running runtime reads CDI specs.
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
						Command: slices.Concat([]string{"tessera-node"}, host, endpointFlag(spec.Args), []string{"--check", "--termination-log="}),
					}},
					PeriodSeconds: 10, TimeoutSeconds: 10,
				},
				Resources:    requests("5m", "24Mi"),
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: hostMount, MountPropagation: new(corev1.MountPropagationHostToContainer)}},
			}},
			Volumes: []corev1.Volume{existing("host", paths(in).Root)},
		},
	}
	objects := []client.Object{w.daemonSet(in, rolling())}
	if spec.RuntimeClass != "" {
		objects = append(objects, runtimeClass(spec.RuntimeClass, cmp.Or(in.RuntimeHandler, "runc")))
	}
	return objects, nil
}

// endpointFlag returns the flag --runtime-endpoint of the toolkit's args, if it is there: the probe must examine the runtime that the toolkit configures.
func endpointFlag(args []string) []string {
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--runtime-endpoint="):
			return []string{arg}
		case arg == "--runtime-endpoint" && i+1 < len(args):
			return args[i : i+2]
		}
	}
	return nil
}

// runtimeFlags returns the flags that describe the container runtime.
func runtimeFlags(in Input) []string {
	return []string{"--containerd-config=" + in.Policy.Spec.Toolkit.ContainerdConfig, "--cdi-dir=" + paths(in).CDI}
}

// runtimeClass returns a class for pods that require one. Devices are injected through CDI, so any handler that starts containers of the node itself
// works. A class cannot name the default handler: the field is required.
func runtimeClass(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{TypeMeta: kind("node.k8s.io/v1", "RuntimeClass"), ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
}
