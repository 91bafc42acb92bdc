package render

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// SchedulerAssignment is the name of the MutatingAdmissionPolicy that sets schedulerName of pods with devices, and of its binding.
const SchedulerAssignment = "schedulername.gpu.tessera.dev"

// scheduler returns tessera-scheduler: its configuration, a Deployment of two pods with leader election, and its PodDisruptionBudget. If another
// scheduler is also used, it also returns the taint that prevents that one from allocating the devices and, while tessera-scheduler is available, the
// binding of the chart's policy that assigns pods with devices to it.
func scheduler(in Input) ([]client.Object, error) {
	spec := in.Policy.Spec.Scheduler
	if !spec.On() {
		return nil, nil
	}
	config, err := schedulerConfig(in)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	objects := []client.Object{
		written(in, "tessera-scheduler-config", "config.yaml", config),
		schedulerDeployment(in, config),
		&policyv1.PodDisruptionBudget{
			TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: named(in, OperandScheduler),
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(whole(1)), Selector: workload{operand: OperandScheduler}.selector()},
		},
	}
	if additional(spec) {
		for _, driver := range publishedDrivers(in) {
			objects = append(objects, schedulersTaint(driver))
		}
		if in.SchedulerAvailable {
			objects = append(objects, schedulerAssignment())
		}
	}
	return objects, nil
}

func additional(spec v1alpha1.SchedulerSpec) bool { return spec.Mode != v1alpha1.SchedulerReplace }

// SchedulerOfDevices returns the scheduler that allocates the driver's devices. Pods of the installer's namespace name it, because no policy assigns them.
func SchedulerOfDevices(spec v1alpha1.ClusterPolicySpec) string {
	if spec.Scheduler.On() && additional(spec.Scheduler) {
		return OperandScheduler
	}
	return corev1.DefaultSchedulerName
}

// schedulersTaint returns the taint on all devices of a DRA driver.
func schedulersTaint(driver string) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		TypeMeta: kind("resource.k8s.io/v1", "DeviceTaintRule"), ObjectMeta: metav1.ObjectMeta{Name: "scheduler." + driver},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &driver},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintScheduler, Value: OperandScheduler, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
}

// schedulerAssignment returns the binding that puts the chart's MutatingAdmissionPolicy into effect. The policy itself is part of the chart, so that the
// installer needs no permission to define how pods are changed.
func schedulerAssignment() *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   kind("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: SchedulerAssignment},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: SchedulerAssignment},
	}
}

// publishedDrivers returns the names of the DRA drivers whose devices the agents publish, our own first.
func publishedDrivers(in Input) []string {
	names := []string{v1alpha1.DriverName}
	add := func(config *v1alpha1.NodeConfigSpec) {
		if config != nil && config.DriverName != "" && !slices.Contains(names, config.DriverName) {
			names = append(names, config.DriverName)
		}
	}
	add(in.Policy.Spec.NodeAgent.Config)
	for _, p := range in.Policy.Spec.NodeAgent.Pools {
		add(p.Config)
	}
	return names
}

func schedulerDeployment(in Input, config string) *appsv1.Deployment {
	spec := in.Policy.Spec.Scheduler
	w := workload{
		operand: OperandScheduler, name: OperandScheduler, component: spec.Component, image: cmp.Or(spec.Image, in.Images.Scheduler),
		annotations: map[string]string{AnnotationConfig: hash(config)},
		pod: corev1.PodSpec{
			ServiceAccountName: OperandScheduler,
			PriorityClassName:  "system-cluster-critical",
			NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
			Tolerations: []corev1.Toleration{
				{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			},
			Affinity:        apartByHost(in, OperandScheduler),
			SecurityContext: unprivilegedUser(),
			Containers:      []corev1.Container{schedulerContainer()},
			Volumes:         []corev1.Volume{fromConfigMap("config", "tessera-scheduler-config")},
		},
	}
	return &appsv1.Deployment{
		TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: named(in, OperandScheduler),
		Spec: appsv1.DeploymentSpec{
			Replicas: spec.Replicas, Selector: w.selector(),
			// The terminating pod releases its lease, so a change of the configuration causes only a short interruption.
			Strategy: appsv1.DeploymentStrategy{
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(whole(1)), MaxUnavailable: new(whole(0))},
			},
			Template: w.template(in),
		},
	}
}

func schedulerContainer() corev1.Container {
	return corev1.Container{
		Name:            "scheduler",
		Args:            []string{"--config=/etc/tessera/config.yaml"},
		Ports:           []corev1.ContainerPort{{Name: "https", ContainerPort: 10259}},
		StartupProbe:    httpsProbe("/readyz", "https", corev1.Probe{PeriodSeconds: 1, FailureThreshold: 120}), // until its caches are synced
		ReadinessProbe:  httpsProbe("/readyz", "https", corev1.Probe{}),
		LivenessProbe:   httpsProbe("/livez", "https", corev1.Probe{FailureThreshold: 6}),
		Resources:       requests("100m", "256Mi"),
		SecurityContext: confined(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/etc/tessera", ReadOnly: true}},
	}
}

// object is a part of a configuration file.
type object = map[string]any

// schedulerConfig returns the configuration file: that of deployments/scheduler with the settings of the policy.
func schedulerConfig(in Input) (string, error) {
	spec := in.Policy.Spec.Scheduler
	// Additional uses a separate lease. Replace uses that of the stock scheduler, so that the two never schedule at the same time.
	lease, names := object{"resourceNamespace": in.Namespace, "resourceName": OperandScheduler}, []string{OperandScheduler}
	if !additional(spec) {
		lease, names = object{"resourceNamespace": "kube-system", "resourceName": "kube-scheduler"}, []string{corev1.DefaultSchedulerName, OperandScheduler}
	}
	lease["leaderElect"] = true
	profiles := make([]any, 0, len(names))
	for _, name := range names {
		profiles = append(profiles, schedulerProfile(name, schedulerArguments(in)))
	}
	text, err := yaml.Marshal(object{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection": lease,
		// A pod with a claim costs five writes; the default of 50 per second would limit scheduling to ten pods per second.
		"clientConnection": object{"qps": 1000, "burst": 2000},
		"profiles":         profiles,
	})
	return string(text), err
}

// schedulerArguments returns the arguments of the plugin.
func schedulerArguments(in Input) object {
	spec, drivers := in.Policy.Spec.Scheduler, []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}
	for _, driver := range publishedDrivers(in) {
		if !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	arguments := object{"drivers": drivers}
	if additional(spec) {
		arguments["mode"] = string(v1alpha1.SchedulerAdditional) // this scheduler tolerates the taint for the cluster's scheduler
	}
	if spec.Preemption {
		arguments["preemption"] = "Enabled"
	}
	return arguments
}

// schedulerProfile replaces the stock plugin with ours, before preemption.
func schedulerProfile(name string, arguments object) object {
	const plugin = "TesseraDynamicResources"
	enabled := object{"enabled": []any{object{"name": plugin}}}
	return object{
		"schedulerName": name,
		"plugins": object{
			"multiPoint": object{
				"enabled":  []any{object{"name": plugin, "weight": 10}},
				"disabled": []any{object{"name": "DynamicResources"}},
			},
			"postFilter":         enabled,
			"podGroupPostFilter": enabled,
		},
		"pluginConfig": []any{object{"name": plugin, "args": arguments}},
	}
}

// apartByHost prefers a separate node for each pod of an operand with the release's images.
func apartByHost(in Input, operand string) *corev1.Affinity {
	affinity := &corev1.Affinity{}
	if all := built(in); all != nil {
		affinity = required(all)
	}
	affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey: corev1.LabelHostname, LabelSelector: workload{operand: operand}.selector(),
			},
		}},
	}
	return affinity
}

// unprivilegedUser returns the security context of a pod that needs no rights on its node.
func unprivilegedUser() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}
