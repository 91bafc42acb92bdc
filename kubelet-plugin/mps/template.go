package mps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// The labels of a daemon's pod. The policy in deployments/admission-mps.yaml relies on the first two.
const (
	nameLabel     = "app.kubernetes.io/name"
	daemonName    = "tessera-mps"
	partLabel     = "app.kubernetes.io/part-of"
	partName      = "tessera"
	instanceLabel = "app.kubernetes.io/instance"
	gpuLabel      = "tessera.dev/gpu"
	claimLabel    = "tessera.dev/claim-uid"
	nodeLabel     = "tessera.dev/node"
	// templateAnnotation is a hash of the pod's spec, which shows whether the pod is outdated.
	templateAnnotation = "tessera.dev/template"
	fieldManager       = "tessera-node"
)

const (
	// agentContainer is the name of the agent's container, among containers that other components may have added.
	agentContainer = "agent"
	folderVolume   = "mps"
	// SharedMemory is the path of the memory that a daemon shares with its clients, in their containers.
	SharedMemory = "/dev/shm"
	// gracePeriod is the supervisor's time, in seconds, to end the daemon and, if needed, to kill it.
	gracePeriod = 30
	// Verb is the command of the agent's program that runs a supervisor.
	Verb = "mps"
)

// errNoPod means that the agent's own pod, the source of the daemons' pods, is unknown.
var errNoPod = errors.New("the agent's own pod is unknown: run the agent in a pod with POD_NAMESPACE and POD_NAME set")

func (p *Pods) pods() typedcorev1.PodInterface { return p.Client.CoreV1().Pods(p.Namespace) }

// podName is unique in the namespace: other nodes have daemons with the same name.
func (p *Pods) podName(daemon string) string { return daemon + "-" + hash([]byte(p.Node)) }

// pod returns the daemon's pod as it would be created now. Images, mounts and other settings are those of the agent's
// own pod, so that an administrator configures them once.
func (p *Pods) pod(ctx context.Context, c configuration) (*corev1.Pod, error) {
	if p.Namespace == "" || p.Pod == "" {
		return nil, errNoPod
	}
	own, err := p.pods().Get(ctx, p.Pod, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the agent's own pod %s: %w", p.Pod, err)
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", p.Node, err)
	}
	agent, err := containerOf(own)
	if err != nil {
		return nil, err
	}
	yes, no, grace := true, false, int64(gracePeriod)
	volumes, mounts := p.mounts(own, agent, c.Name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      p.podName(c.Name),
			Namespace: p.Namespace,
			Labels:    p.labels(c),
			// Like the mirror pod of a static pod: a drain may evict it, and it is deleted with the node.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName:                      p.Node,
			PriorityClassName:             own.Spec.PriorityClassName,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			HostPID:                       true,
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  &no,
			ImagePullSecrets:              own.Spec.ImagePullSecrets,
			RuntimeClassName:              own.Spec.RuntimeClassName,
			Containers: []corev1.Container{{
				Name:            daemonName,
				Image:           agent.Image,
				ImagePullPolicy: agent.ImagePullPolicy,
				Command:         agent.Command,
				Args:            slices.Concat(p.Args, []string{Verb, "--name=" + c.Name, "--dir=" + p.Dir}),
				Env: []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
				}}},
				SecurityContext:        &corev1.SecurityContext{Privileged: &yes},
				TerminationMessagePath: agent.TerminationMessagePath,
				VolumeMounts:           mounts,
			}},
			Volumes: volumes,
		},
	}
	spec, err := json.Marshal(pod.Spec)
	if err != nil {
		return nil, fmt.Errorf("describe the pod of MPS daemon %s: %w", c.Name, err)
	}
	pod.Annotations = map[string]string{templateAnnotation: hash(spec)}
	return pod, nil
}

// labels returns the labels by which the pod is found.
func (p *Pods) labels(c configuration) map[string]string {
	labels := map[string]string{nameLabel: daemonName, partLabel: partName, instanceLabel: c.Name, nodeLabel: labelValue(p.Node)}
	if c.GPU != "" {
		labels[gpuLabel] = c.GPU
	}
	if c.ClaimUID != "" {
		labels[claimLabel] = c.ClaimUID
	}
	return labels
}

// containerOf returns the container in which the agent runs.
func containerOf(own *corev1.Pod) (corev1.Container, error) {
	i := slices.IndexFunc(own.Spec.Containers, func(c corev1.Container) bool { return c.Name == agentContainer })
	switch {
	case i >= 0:
		return own.Spec.Containers[i], nil
	case len(own.Spec.Containers) == 1:
		return own.Spec.Containers[0], nil
	}
	return corev1.Container{}, fmt.Errorf("the agent's own pod %s has no container %s", own.Name, agentContainer)
}

// mounts returns the volumes of the daemon's folder, of the folders in memory, and those of the agent that p.Needs requires.
func (p *Pods) mounts(own *corev1.Pod, agent corev1.Container, daemon string) ([]corev1.Volume, []corev1.VolumeMount) {
	create := corev1.HostPathDirectoryOrCreate
	volumes := []corev1.Volume{
		sharedMemory.source(), pipes.source(), logs.source(),
		// After a boot the folder is missing, and kubelet may start the pod before the agent requests the daemon.
		{Name: folderVolume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: p.folder(daemon), Type: &create}}},
	}
	mounts := []corev1.VolumeMount{
		{Name: sharedMemory.name, MountPath: SharedMemory},
		{Name: folderVolume, MountPath: p.folder(daemon)},
		{Name: pipes.name, MountPath: filepath.Join(p.folder(daemon), pipeName)},
		{Name: logs.name, MountPath: filepath.Join(p.folder(daemon), logName)},
	}
	for _, m := range agent.VolumeMounts {
		i := slices.IndexFunc(own.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || own.Spec.Volumes[i].Projected != nil || !slices.ContainsFunc(p.Needs, func(need string) bool { return covers(m.MountPath, need) }) {
			continue
		}
		mounts = append(mounts, m)
		if !slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			volumes = append(volumes, own.Spec.Volumes[i])
		}
	}
	return volumes, mounts
}

// covers reports whether a volume mounted at the path is visible at need or below it.
func covers(mounted, need string) bool {
	mounted, need = filepath.Clean(mounted), filepath.Clean(need)
	return under(need, mounted) || need != "/" && under(mounted, need)
}

// under reports whether path is the folder or is below it.
func under(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// labelValue returns the text if it is a valid label value, and otherwise a part of it with a hash of the whole: names
// of nodes may be longer than 63 characters.
func labelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	sum := hash([]byte(text))
	return strings.Trim(text[:min(len(text), validation.LabelValueMaxLength-len(sum)-1)], "-_.") + "-" + sum
}

// hash returns a short hash that distinguishes texts in names: 8 hexadecimal digits.
func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}
