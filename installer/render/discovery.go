package render

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// discovery returns the DaemonSet that reports a node's GPUs, kernel, operating system and runtime. It mounts the host read-only and runs as a user
// that owns no file there: world-readable files suffice, and root could open the host's sockets. A runtime configuration that only its owner can read
// is evaluated by the toolkit.
func discovery(in Input) ([]client.Object, error) {
	spec := in.Policy.Spec.Discovery
	if !spec.On() {
		return nil, nil
	}
	w := workload{
		operand: OperandDiscovery, name: OperandDiscovery, component: spec.Component, image: cmp.Or(spec.Image, in.Images.Node),
		pod: corev1.PodSpec{
			ServiceAccountName: OperandDiscovery,
			Affinity:           required(slices.Concat(notOptedOut(), chosen(in.Policy.Spec.NodeSelector), built(in)), found(in)...),
			SecurityContext:    unprivilegedUser(),
			Containers: []corev1.Container{{
				Name:            "discovery",
				Args:            slices.Concat([]string{"discover"}, rootFlags(in), runtimeFlags(in)),
				Env:             []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
				SecurityContext: reading(),
				Resources:       requests("5m", "24Mi"),
				VolumeMounts: []corev1.VolumeMount{{
					// Unmounts of the host must propagate here: a volume that stays mounted cannot move to another node.
					Name: "host", MountPath: hostMount, ReadOnly: true, MountPropagation: new(corev1.MountPropagationHostToContainer),
				}},
			}},
			Volumes: []corev1.Volume{existing("host", paths(in).Root)},
		},
	}
	set := w.daemonSet(in, rolling())
	set.Spec.MinReadySeconds = looks
	return []client.Object{set}, nil
}

// looks is the time in seconds for the first report, including one retry, before the pod counts as available. Until it is available on all nodes, the
// number of GPU nodes is unknown.
const looks = 10

// found returns alternative node requirements for discovery; none means every Linux node. Each node is evaluated by its own labels, so that
// installing or removing Node Feature Discovery, or losing its labels, affects no other node and recreates no pod.
func found(in Input) []corev1.NodeSelectorRequirement {
	const features = "feature.node.kubernetes.io/"
	const pci = features + "pci-"
	labelled := []corev1.NodeSelectorRequirement{
		isTrue(pci + "10de.present"), isTrue(pci + "0302_10de.present"), isTrue(pci + "0300_10de.present"),
		isTrue(v1alpha1.LabelPresent), // found by an earlier discovery
	}
	switch in.Policy.Spec.Discovery.Source {
	case v1alpha1.DiscoverScan:
		return nil
	case v1alpha1.DiscoverNFD:
		return labelled
	case v1alpha1.DiscoverAuto:
	}
	// Node Feature Discovery labels every node with its kernel version.
	return append(labelled, corev1.NodeSelectorRequirement{Key: features + "kernel-version.full", Operator: corev1.NodeSelectorOpDoesNotExist})
}
