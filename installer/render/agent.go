package render

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Pools of the node agent that exist without a policy: values of the label tessera.dev/agent.
const (
	// PoolDefault is the pool of nodes that no pool selects.
	PoolDefault = "default"
	// PoolSandbox is the pool of nodes whose GPUs are for virtual machines.
	PoolSandbox = "sandbox"
)

// pool is a group of nodes with the same agent configuration.
type pool struct {
	name   string
	config v1alpha1.NodeConfigSpec
}

// agents returns the node agent's DaemonSet and ConfigMap of each pool.
func agents(in Input) ([]client.Object, error) {
	pools, err := pools(in)
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, p := range pools {
		text, err := p.nodeConfig(in)
		if err != nil {
			return nil, fmt.Errorf("write the configuration of pool %s: %w", p.name, err)
		}
		objects = append(objects, written(in, p.suffixed("tessera-node-config"), "node.yaml", text), p.daemonSet(in, text))
	}
	return objects, nil
}

// pools returns the pools of the policy, and pools that are no longer in the policy while nodes have their label.
func pools(in Input) ([]pool, error) {
	spec := in.Policy.Spec.NodeAgent
	common := v1alpha1.NodeConfigSpec{}
	if spec.Config != nil {
		common = *spec.Config
	}
	var all []pool
	if spec.On() {
		all = append(all, pool{PoolDefault, common})
		for _, p := range spec.Pools {
			config := common
			if p.Config != nil {
				config = *p.Config
			}
			all = append(all, pool{p.Name, config})
		}
	}
	if spec.On() && in.Policy.Spec.SandboxWorkloads.Enabled {
		if slices.ContainsFunc(all, func(p pool) bool { return p.name == PoolSandbox }) {
			return nil, fmt.Errorf("pool %s: the name is reserved for sandboxWorkloads; use another name", PoolSandbox)
		}
		all = append(all, sandbox(common))
	}
	for _, name := range slices.Sorted(slices.Values(in.Agents)) {
		if !slices.ContainsFunc(all, func(p pool) bool { return p.name == name }) {
			all = append(all, left(name, common))
		}
	}
	return all, nil
}

// sandbox returns the pool of nodes whose GPUs are offered only to virtual machines.
func sandbox(common v1alpha1.NodeConfigSpec) pool {
	common.Shapes, common.Profiles = []v1alpha1.Shape{v1alpha1.ShapeVFIO}, nil
	return pool{PoolSandbox, common}
}

// left returns a pool that is no longer in the policy and whose label nodes still have.
func left(name string, common v1alpha1.NodeConfigSpec) pool {
	if name == PoolSandbox {
		return sandbox(common)
	}
	return pool{name, common}
}

// suffixed returns the name of an object of the pool.
func (p pool) suffixed(name string) string {
	if p.name == PoolDefault {
		return name
	}
	return name + "-" + p.name
}

// nodeConfig returns the NodeConfig of the pool as YAML. Unset roots are derived from the pod's host mounts.
func (p pool) nodeConfig(in Input) (string, error) {
	config := v1alpha1.NodeConfig{TypeMeta: kind(v1alpha1.APIVersion, v1alpha1.NodeConfigKind), NodeConfigSpec: p.config}
	host := paths(in)
	below := func(folder, usual string) string {
		if folder == usual {
			return ""
		}
		return path.Join(hostMount, folder)
	}
	config.Roots.Host = cmp.Or(config.Roots.Host, hostMount)
	config.Roots.Proc = cmp.Or(config.Roots.Proc, below(host.Proc, "/proc"))
	config.Roots.Sys = cmp.Or(config.Roots.Sys, below(host.Sys, "/sys"))
	config.Roots.Dev = cmp.Or(config.Roots.Dev, below(host.Dev, "/"))
	// Without this folder the agent uses the host's own driver.
	config.Roots.Driver = cmp.Or(config.Roots.Driver, below(host.DriverInstallDir, driverRoot))
	text, err := yaml.Marshal(config)
	return string(text), err
}

// daemonSet returns the DaemonSet of the pool. Two agents overlap during an update, so that kubelet can always call one. One tenth of the nodes is
// updated at a time: an agent that does not become ready stops the update and the old agent keeps running.
func (p pool) daemonSet(in Input, config string) *appsv1.DaemonSet {
	spec := in.Policy.Spec.NodeAgent
	w := workload{
		operand: OperandNodeAgent, name: p.suffixed(OperandNodeAgent), variant: map[string]string{v1alpha1.LabelAgent: p.name},
		// The default pool has the selector of deployments/daemonset.yaml, so that an agent installed without the installer is adopted.
		apart:     p.name != PoolDefault,
		component: spec.Component, image: cmp.Or(spec.Image, in.Images.Node),
		annotations: map[string]string{AnnotationConfig: hash(config)},
		pod: corev1.PodSpec{
			ServiceAccountName: OperandNodeAgent,
			HostPID:            true, // NVML reports only the processes of the caller's PID namespace
			NodeSelector:       map[string]string{v1alpha1.LabelAgent: p.name},
			// A started reset is finished before the agent exits; otherwise it exits at once.
			TerminationGracePeriodSeconds: new(int64(150)),
			Containers:                    []corev1.Container{agentContainer(in)},
			Volumes:                       append([]corev1.Volume{fromConfigMap("config", p.suffixed("tessera-node-config"))}, agentVolumes(in)...),
		},
	}
	return w.daemonSet(in, appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxSurge: new(percent("10%")), MaxUnavailable: new(whole(0)),
		},
	})
}

func agentContainer(in Input) corev1.Container {
	host := paths(in)
	toContainer := corev1.MountPropagationHostToContainer
	return corev1.Container{
		Name: "agent",
		Args: append([]string{"--config=/etc/tessera/node.yaml", "--gpunode"}, agentFlags(host)...),
		Env: []corev1.EnvVar{
			fromField("NODE_NAME", "spec.nodeName"), fromField("POD_UID", "metadata.uid"),
			fromField("POD_NAME", "metadata.name"), fromField("POD_NAMESPACE", "metadata.namespace"),
		},
		SecurityContext: privileged(),
		Ports:           []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8080}},
		ReadinessProbe:  httpsProbe("/readyz", "metrics", corev1.Probe{PeriodSeconds: 2, FailureThreshold: 1, TimeoutSeconds: 10}),
		// It fails when the agent has hung for 5 minutes. The agent serves it when it has opened the driver, which can take minutes.
		LivenessProbe: httpsProbe("/livez", "metrics", corev1.Probe{InitialDelaySeconds: 300, PeriodSeconds: 30, TimeoutSeconds: 30, FailureThreshold: 4}),
		Resources:     requests("20m", "64Mi"),
		// Kubelet's default is in /dev, which is the host's here.
		TerminationMessagePath: "/etc/tessera-termination",
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/tessera", ReadOnly: true},
			{Name: "host", MountPath: hostMount, MountPropagation: &toContainer},
			{Name: "dev", MountPath: "/dev", MountPropagation: &toContainer},
			{Name: "plugins", MountPath: path.Join(host.KubeletRoot, "plugins")},
			{Name: "registry", MountPath: path.Join(host.KubeletRoot, "plugins_registry")},
			{Name: "cdi", MountPath: host.CDI},
			{Name: "mps", MountPath: mpsFolder},
			{Name: "pod-resources", MountPath: path.Join(host.KubeletRoot, "pod-resources"), ReadOnly: true},
		},
	}
}

// mpsFolder has the folders of MPS daemons, on the host and in pods. It is in memory, because no state of a daemon may survive a reboot.
const mpsFolder = "/run/tessera/mps"

// agentFlags returns the agent's flags for folders that differ from the defaults.
func agentFlags(host v1alpha1.HostPathsSpec) []string {
	var flags []string
	if host.KubeletRoot != "/var/lib/kubelet" {
		flags = append(flags,
			"--plugin-dir="+path.Join(host.KubeletRoot, "plugins"),
			"--registry-dir="+path.Join(host.KubeletRoot, "plugins_registry"),
			"--pod-resources="+path.Join(host.KubeletRoot, "pod-resources/kubelet.sock"),
			"--kubelet-state="+path.Join(host.KubeletRoot, "dra_manager_state"))
	}
	if host.CDI != "/var/run/cdi" {
		flags = append(flags, "--cdi-dir="+host.CDI)
	}
	return flags
}

func agentVolumes(in Input) []corev1.Volume {
	host := paths(in)
	return []corev1.Volume{
		existing("host", host.Root),
		existing("dev", "/dev"), // NVML opens device nodes that may appear after the agent's start
		folder("plugins", path.Join(host.KubeletRoot, "plugins")),
		folder("registry", path.Join(host.KubeletRoot, "plugins_registry")),
		folder("cdi", host.CDI),
		folder("pod-resources", path.Join(host.KubeletRoot, "pod-resources")),
		folder("mps", mpsFolder),
	}
}

// written returns a ConfigMap with one configuration file rendered by the installer.
func written(in Input, name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: named(in, name), Data: map[string]string{key: text}}
}
