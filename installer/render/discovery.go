package render

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// discovery returns the DaemonSet that tells what a node is: its GPUs, kernel, operating system, runtime. It sees the host read-only, as a user to whom
// nothing there belongs: what everybody may read is enough, and root would reach the sockets of the host. Where the configuration of a runtime is
// its owner's alone, the toolkit looks closer.
func discovery(in Input) ([]client.Object, error) {
	spec := in.Policy.Spec.Discovery
	if !spec.On() {
		return nil, nil
	}
	w := workload{
		operand: OperandDiscovery, name: OperandDiscovery, component: spec.Component, image: cmp.Or(spec.Image, in.Images.Node),
		pod: corev1.PodSpec{
			ServiceAccountName: OperandDiscovery,
			Affinity:           required(append(notOptedOut(), chosen(in.Policy.Spec.NodeSelector)...), found(in)...),
			SecurityContext:    unprivilegedUser(),
			Containers: []corev1.Container{{
				Name:            "discovery",
				Args:            slices.Concat([]string{"discover"}, rootFlags(in), runtimeFlags(in)),
				Env:             []corev1.EnvVar{fromField("NODE_NAME", "spec.nodeName")},
				SecurityContext: reading(),
				Resources:       requests("5m", "24Mi"),
				VolumeMounts: []corev1.VolumeMount{{
					// What the host unmounts must go here, too: a volume that stays mounted somewhere cannot move to another node.
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

// looks is how many seconds the discovery has to tell what a node is, a second try included, before it counts as available there: until it is available
// everywhere, nobody knows how many GPU nodes there are.
const looks = 10

// found are the requirements of which a node must meet one to be looked at; none: every Linux node is. Each node is judged by its own labels, so that
// nothing changes for the others, and no pod is made anew, when Node Feature Discovery comes, goes or loses its labels.
func found(in Input) []corev1.NodeSelectorRequirement {
	const features = "feature.node.kubernetes.io/"
	const pci = features + "pci-"
	labelled := []corev1.NodeSelectorRequirement{
		isTrue(pci + "10de.present"), isTrue(pci + "0302_10de.present"), isTrue(pci + "0300_10de.present"),
		isTrue(v1alpha1.LabelPresent), // known to the installer already
	}
	switch in.Policy.Spec.Discovery.Source {
	case v1alpha1.DiscoverScan:
		return nil
	case v1alpha1.DiscoverNFD:
		return labelled
	case v1alpha1.DiscoverAuto:
	}
	// The kernel's version is what Node Feature Discovery tells of every node.
	return append(labelled, corev1.NodeSelectorRequirement{Key: features + "kernel-version.full", Operator: corev1.NodeSelectorOpDoesNotExist})
}
