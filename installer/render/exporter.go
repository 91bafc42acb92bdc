package render

import (
	"cmp"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	metricsPort   = 9400
	metricsFolder = "/etc/tessera-metrics"
	metricsFile   = "dcgm-metrics.csv"

	// monitorProbeSeconds is the period of the readiness probes of DCGM and dcgm-exporter. The first probe usually precedes the listening socket, and the
	// policy becomes Ready only after the next one: kubelet's default period is 10 s.
	monitorProbeSeconds = 2
)

// exporter returns dcgm-exporter.
func exporter(in Input) ([]client.Object, error) {
	spec := in.Policy.Spec.DCGMExporter
	if !spec.On() {
		return nil, nil
	}
	w := workload{
		operand: OperandDCGMExporter, name: OperandDCGMExporter, component: spec.Component, image: cmp.Or(spec.Image, in.Images.DCGMExporter),
		pod: monitor(in, "dcgm-exporter", OperandDCGMExporter, exporterContainer(in)),
	}
	// Kubelet's pod resources API: which pods use which devices.
	w.pod.Volumes = append(w.pod.Volumes, existing("pod-resources", path.Join(paths(in).KubeletRoot, "pod-resources")))
	if spec.Config != "" {
		w.pod.Volumes = append(w.pod.Volumes, fromConfigMap("metrics", spec.Config))
		w.annotations = map[string]string{AnnotationConfig: in.Contents[configMap(spec.Config)]}
	}
	objects := []client.Object{
		w.daemonSet(in, rolling()), localService(in, OperandDCGMExporter, corev1.ServicePort{Name: "metrics", Port: metricsPort}), monitorClaim(in, OperandDCGMExporter),
	}
	if spec.ServiceMonitor && in.ServiceMonitors {
		objects = append(objects, serviceMonitor(in))
	}
	return objects, nil
}

func exporterContainer(in Input) corev1.Container {
	c := corev1.Container{
		Name: "nvidia-dcgm-exporter", SecurityContext: profiling(),
		Env: []corev1.EnvVar{
			fromField("NODE_NAME", "spec.nodeName"),
			{Name: "DCGM_EXPORTER_LISTEN", Value: fmt.Sprintf(":%d", metricsPort)},
			{Name: "DCGM_EXPORTER_KUBERNETES", Value: "true"},
		},
		Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: metricsPort}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromString("metrics")}},
			PeriodSeconds: monitorProbeSeconds,
		},
		Resources:    requests("20m", "128Mi"),
		VolumeMounts: []corev1.VolumeMount{{Name: "pod-resources", MountPath: "/var/lib/kubelet/pod-resources", ReadOnly: true}},
	}
	if in.Policy.Spec.DCGM.Chosen() {
		c.SecurityContext = confined() // the engine reads the counters
		c.Env = append(c.Env, corev1.EnvVar{Name: "DCGM_REMOTE_HOSTENGINE_INFO", Value: fmt.Sprintf("%s:%d", OperandDCGM, enginePort)})
	}
	if in.Policy.Spec.DCGMExporter.Config != "" {
		c.Env = append(c.Env, corev1.EnvVar{Name: "DCGM_EXPORTER_COLLECTORS", Value: path.Join(metricsFolder, metricsFile)})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "metrics", MountPath: metricsFolder, ReadOnly: true})
	}
	return c
}

// serviceMonitor returns the ServiceMonitor for the Prometheus Operator.
func serviceMonitor(in Input) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
		"metadata": object{"name": OperandDCGMExporter, "namespace": in.Namespace},
		"spec": object{
			"selector": object{"matchLabels": object{LabelName: OperandDCGMExporter}},
			"endpoints": []any{object{
				"port": "metrics", "interval": prometheus(in.Policy.Spec.DCGMExporter.Interval.Duration),
				// The labels of a device identify the pod that uses it. The exporter has none for devices of this DRA driver, and those of the
				// exporter's pod would be taken for them.
				"honorLabels": true,
				"relabelings": []any{object{"action": "labeldrop", "regex": "namespace|pod|container"}},
			}},
		},
	}}
}

// prometheus formats a duration as Prometheus requires it: a whole number of milliseconds or seconds.
func prometheus(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}
