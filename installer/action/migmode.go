package action

import (
	"cmp"
	"context"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// MIGModePodName returns the name of the pod that changes the MIG mode of a node.
func MIGModePodName(node string) string { return render.OperandOperation + "-" + node }

// hostMount is where the pod sees the host's root.
const hostMount = "/host"

// MIGModeChange describes the pod that changes the MIG mode of a node's GPUs.
type MIGModeChange struct {
	Node *v1alpha1.GPUNode
	Mode v1alpha1.MIGMode
	// Image is that of the node agent, Paths are the policy's host paths, complete.
	Image       string
	PullSecrets []string
	Paths       v1alpha1.HostPathsSpec
}

// CreateMIGModePod creates the pod that changes the MIG mode of a node. A pod that exists is left as it is.
func (c Cluster) CreateMIGModePod(ctx context.Context, change MIGModeChange) error {
	meta := c.ownedBy(change.Node, MIGModePodName(change.Node.Name), render.OperandOperation)
	meta.Annotations = map[string]string{AnnotationBarrier: string(change.Mode)}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName:                     change.Node.Name,
		ServiceAccountName:           render.OperandDriver,
		AutomountServiceAccountToken: new(false),
		PriorityClassName:            "system-node-critical",
		RestartPolicy:                corev1.RestartPolicyNever,
		HostPID:                      true,
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		ImagePullSecrets:             pullSecrets(change.PullSecrets),
		Containers: []corev1.Container{{
			Name: "mig-mode", Image: change.Image, Args: change.args(),
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts: []corev1.VolumeMount{{
				Name: "host", MountPath: hostMount, MountPropagation: new(corev1.MountPropagationHostToContainer),
			}},
		}},
		Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: change.Paths.Root}}}},
	}}
	if err := c.Client.Create(ctx, pod, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the pod that changes the MIG mode of node %s: %w", change.Node.Name, err)
	}
	return nil
}

// args returns the arguments of tessera-node host mig-mode.
func (change MIGModeChange) args() []string {
	p := change.Paths
	return []string{
		"host", "mig-mode", "--mode=" + string(change.Mode),
		"--host-root=" + hostMount,
		"--proc-root=" + path.Join(hostMount, cmp.Or(p.Proc, "/proc")),
		"--sys-root=" + path.Join(hostMount, cmp.Or(p.Sys, "/sys")),
		"--dev-root=" + path.Join(hostMount, p.Dev),
		"--driver-root=" + p.DriverInstallDir,
	}
}

func pullSecrets(names []string) []corev1.LocalObjectReference {
	var list []corev1.LocalObjectReference
	for _, name := range names {
		list = append(list, corev1.LocalObjectReference{Name: name})
	}
	return list
}

// DeleteMIGModePod deletes the pod that changes the MIG mode of a node.
func (c Cluster) DeleteMIGModePod(ctx context.Context, node string) error {
	return c.deleteObject(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: MIGModePodName(node)}})
}
