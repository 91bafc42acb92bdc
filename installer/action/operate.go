package action

import (
	"context"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// OperationName is the name of the pod that changes the MIG mode of a node.
func OperationName(node string) string { return render.OperandOperation + "-" + node }

// hostMount is where the host's root is mounted in them.
const hostMount = "/host"

// Operate makes the pod that changes the MIG mode of a node's GPUs.
type Operate struct {
	Node *v1alpha1.GPUNode
	// Image is the node's, Paths are the host's, complete.
	Image       string
	PullSecrets []string
	Paths       v1alpha1.HostPathsSpec
	Mode        v1alpha1.MIGMode
}

// Do performs it. A pod that stands already is left to itself.
func (a Operate) Do(ctx context.Context, c Cluster) error {
	meta := c.owned(a.Node, OperationName(a.Node.Name), render.OperandOperation)
	meta.Annotations = map[string]string{AnnotationBarrier: string(a.Mode)}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName:                     a.Node.Name,
		ServiceAccountName:           render.OperandDriver,
		AutomountServiceAccountToken: new(false),
		PriorityClassName:            "system-node-critical",
		RestartPolicy:                corev1.RestartPolicyNever,
		HostPID:                      true,
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		ImagePullSecrets:             pullSecrets(a.PullSecrets),
		Containers: []corev1.Container{{
			Name: "mig-mode", Image: a.Image, Args: a.args(),
			SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			VolumeMounts: []corev1.VolumeMount{{
				Name: "host", MountPath: hostMount, MountPropagation: new(corev1.MountPropagationHostToContainer),
			}},
		}},
		Volumes: []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: a.Paths.Root}}}},
	}}
	if err := c.Client.Create(ctx, pod, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make pod that changes the MIG mode of node %s: %w", a.Node.Name, err)
	}
	return nil
}

// args are those of the verb.
func (a Operate) args() []string {
	p := a.Paths
	return []string{
		"host", "mig-mode", "--mode=" + string(a.Mode),
		"--host-root=" + hostMount,
		"--proc-root=" + path.Join(hostMount, or(p.Proc, "/proc")),
		"--sys-root=" + path.Join(hostMount, or(p.Sys, "/sys")),
		"--dev-root=" + path.Join(hostMount, p.Dev),
		"--driver-root=" + p.DriverInstallDir,
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func pullSecrets(names []string) []corev1.LocalObjectReference {
	var list []corev1.LocalObjectReference
	for _, name := range names {
		list = append(list, corev1.LocalObjectReference{Name: name})
	}
	return list
}

// EndOperate removes the pod that changes the MIG mode.
type EndOperate struct{ Node string }

// Do performs it.
func (a EndOperate) Do(ctx context.Context, c Cluster) error {
	return c.remove(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: OperationName(a.Node)}})
}

// remove deletes an object; one that is gone is fine.
func (c Cluster) remove(ctx context.Context, object client.Object) error {
	if err := c.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1.")
		return fmt.Errorf("remove %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}
