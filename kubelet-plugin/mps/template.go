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
	"k8s.io/apimachinery/pkg/api/resource"
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
	// templateAnnotation is a hash of what the pod was made from.
	templateAnnotation = "tessera.dev/template"
	fieldManager       = "tessera-node"
)

const (
	// agentContainer is the name of the agent's container among those that others may have added.
	agentContainer = "agent"
	shmVolume      = "shm"
	folderVolume   = "mps"
	// shmSize is how large the memory may become that a daemon and its clients share. It is their
	// /dev/shm, and takes only what is written into it.
	shmSize = "8Gi"
	// gracePeriod is how long the supervisor has for ending the daemon and, if it must, for killing it.
	gracePeriod = 30
	// Verb is the command of the agent's program that runs a supervisor.
	Verb = "mps"
)

// errNoPod says that the agent has no pod to make others from.
var errNoPod = errors.New("the agent's own pod is unknown: run the agent in a pod with POD_NAMESPACE and POD_NAME set")

func (p *Pods) pods() typedcorev1.PodInterface { return p.Client.CoreV1().Pods(p.Namespace) }

// podName is unique in the namespace: other nodes have daemons of the same name.
func (p *Pods) podName(daemon string) string { return daemon + "-" + hash([]byte(p.Node)) }

// pod returns the daemon's pod as it would be made now, from the agent's own pod: what an administrator
// decides about images and mounts is decided once.
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
			// As with the mirror of a static pod: a drain may evict it, and it goes with the node.
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

// labels returns what the pod is found by.
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

// mounts returns the daemon's own folder and memory, and what the agent has mounted where it is needed.
func (p *Pods) mounts(own *corev1.Pod, agent corev1.Container, daemon string) ([]corev1.Volume, []corev1.VolumeMount) {
	size, create := resource.MustParse(shmSize), corev1.HostPathDirectoryOrCreate
	volumes := []corev1.Volume{
		{Name: shmVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
		// After a boot the folder is gone and the pod starts again before the agent asks for the daemon.
		{Name: folderVolume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: p.folder(daemon), Type: &create}}},
	}
	mounts := []corev1.VolumeMount{
		{Name: shmVolume, MountPath: "/dev/shm"},
		{Name: folderVolume, MountPath: p.folder(daemon)},
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

// covers reports whether what is mounted at the path is seen at need, or below it.
func covers(mounted, need string) bool {
	mounted, need = filepath.Clean(mounted), filepath.Clean(need)
	return under(need, mounted) || need != "/" && under(mounted, need)
}

// under reports whether path is the folder or lies below it.
func under(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// labelValue returns the text, or a part of it that is told from others by a hash where it is no value
// of a label: names of nodes may be longer than 63 characters.
func labelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	sum := hash([]byte(text))
	return strings.Trim(text[:min(len(text), validation.LabelValueMaxLength-len(sum)-1)], "-_.") + "-" + sum
}

// hash tells texts apart in names.
func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:4])
}
