package lifecycle

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/preflight"
	"github.com/tessera-gpu/tessera/installer/host/unload"
)

// labelDaemonSet names the DaemonSet of a pod. An annotation of the same key has the template that the pod was made from.
const labelDaemonSet = "simulator/daemonset"

// syncDaemonSets is the DaemonSet controller: it creates a pod per node that the template selects, and deletes pods
// whose DaemonSet, node or template changed. With OnDelete an outdated template deletes nothing.
func (s *simulator) syncDaemonSets(ctx context.Context, now *snapshot) error {
	current := map[types.UID]bool{}
	for i := range now.sets.Items {
		set := &now.sets.Items[i]
		for j := range now.nodes.Items {
			node := &now.nodes.Items[j]
			want := newDaemonPod(set, node.Name)
			if !selectsNode(want, node) || set.DeletionTimestamp != nil {
				continue
			}
			at := slices.IndexFunc(now.pods.Items, func(p corev1.Pod) bool { return p.Name == want.Name && p.Namespace == want.Namespace })
			if at < 0 {
				want.Spec.NodeName = node.Name
				if err := s.admin.Create(ctx, want); client.IgnoreAlreadyExists(err) != nil {
					return err
				}
				continue
			}
			have := now.pods.Items[at]
			outdated := have.Annotations[labelDaemonSet] != want.Annotations[labelDaemonSet]
			if have.Labels[labelDaemonSet] == set.Name && (!outdated || set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType) {
				current[have.UID] = true
			}
		}
	}
	for i := range now.pods.Items {
		pod := &now.pods.Items[i]
		if pod.Labels[labelDaemonSet] == "" || current[pod.UID] {
			continue
		}
		s.observeStop(now, pod)
		if err := s.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// observeStop records how many claims are prepared on the node of an agent that is stopped.
func (s *simulator) observeStop(now *snapshot, pod *corev1.Pod) {
	if pod.Labels["app.kubernetes.io/name"] != "tessera-node" {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	node := pod.Spec.NodeName
	s.preparedAtStop[node] = max(s.preparedAtStop[node], int(countPrepared(now, node)))
}

// selectsNode reports whether the node selector and the affinity of a pod match the node.
func selectsNode(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}

// newDaemonPod returns the pod of a DaemonSet on a node, with the fields that the installer reads.
func newDaemonPod(set *appsv1.DaemonSet, node string) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta}
	pod.Namespace, pod.Name = set.Namespace, set.Name+"-"+node
	pod.Labels = labels.Merge(pod.Labels, labels.Set{labelDaemonSet: set.Name})
	text, _ := json.Marshal(template)
	pod.Annotations = labels.Merge(pod.Annotations, labels.Set{labelDaemonSet: string(text)})
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: new(true)}}
	pod.Spec.NodeSelector, pod.Spec.Affinity = template.Spec.NodeSelector, template.Spec.Affinity
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, c := range template.Spec.InitContainers {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: c.Name, Image: c.Image, Args: c.Args})
	}
	for _, c := range template.Spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	return pod
}

// syncPods is the kubelet of every node: it removes pods that are being deleted and reports the status of operands.
func (s *simulator) syncPods(ctx context.Context, now *snapshot) error {
	for i := range now.pods.Items {
		pod := &now.pods.Items[i]
		if pod.DeletionTimestamp != nil {
			err := s.admin.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			continue
		}
		if pod.Namespace != home {
			continue
		}
		want := s.podStatus(pod)
		if pod.Labels["app.kubernetes.io/name"] == "tessera-driver" {
			want = s.startDriver(now, pod, want)
		}
		if equality.Semantic.DeepDerivative(want, pod.Status) {
			continue
		}
		updated := pod.DeepCopy()
		updated.Status = want
		if err := s.admin.Status().Update(ctx, updated); err != nil {
			return err
		}
	}
	return nil
}

// podStatus returns the status that kubelet reports of an operand's pod: validations and operations end, all others run.
func (s *simulator) podStatus(pod *corev1.Pod) corev1.PodStatus {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch pod.Labels["app.kubernetes.io/name"] {
	case "tessera-validation":
		if s.failingValidations[pod.Labels["tessera.dev/node"]] {
			failed := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "Test FAILED"}
			return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "validator", State: corev1.ContainerState{Terminated: &failed},
			}}}
		}
		return corev1.PodStatus{Phase: corev1.PodSucceeded}
	case "tessera-operation":
		return corev1.PodStatus{Phase: corev1.PodSucceeded}
	case "tessera-driver":
		if failed := s.preflightStatus(pod); failed != nil {
			return *failed
		}
		if fault := s.driverFaultOf(pod); fault != "" {
			return s.faultyDriverStatus(pod, fault)
		}
	}
	return corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Ready: true, Image: pod.Spec.Containers[0].Image}},
	}
}

// preflightStatus is podStatus of a driver that its node does not support, as the verb preflight in its init container reports it; nil of another one.
// The mutex is held.
func (s *simulator) preflightStatus(pod *corev1.Pod) *corev1.PodStatus {
	m, result := s.machines[pod.Spec.NodeName], host.Result{Verb: preflight.Verb}
	if len(pod.Spec.InitContainers) == 0 {
		return nil
	}
	for _, arg := range pod.Spec.InitContainers[0].Args {
		if kernel, ok := strings.CutPrefix(arg, "--kernel="); ok && kernel != m.kernel {
			result.Reason = preflight.KernelChanged
		}
		if os, ok := strings.CutPrefix(arg, "--os="); ok && os != m.os {
			result.Reason = preflight.OSChanged
		}
	}
	if result.Reason == "" {
		return nil
	}
	return new(initFailure(result))
}

// startDriver returns the status of a driver's pod, and records the modules that it loads. An image that reloads the modules fails when it starts while
// claims are prepared: the verb unload refuses to remove modules in use.
func (s *simulator) startDriver(now *snapshot, pod *corev1.Pod, want corev1.PodStatus) corev1.PodStatus {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	m := s.machines[pod.Spec.NodeName]
	loaded, exists := s.modules[m.name]
	if s.reloadsDriver && exists && loaded.boot == m.boot && !isPodReady(pod) && countPrepared(now, m.name) > 0 {
		return initFailure(host.Result{Verb: unload.Verb, Reason: unload.ModuleInUse, Message: "nvidia is in use"})
	}
	if isPodReady(&corev1.Pod{Status: want}) {
		_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
		version, _, _ := strings.Cut(tag, "-")
		s.modules[m.name] = driverModules{version, m.boot}
	}
	return want
}

// initFailure is the status of a pod whose host verb fails; its init container has the verb's name.
func initFailure(result host.Result) corev1.PodStatus {
	text, err := json.Marshal(result)
	if err != nil {
		text = []byte(err.Error())
	}
	return corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
		Name: result.Verb, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: string(text)}},
	}}}
}

// faultyDriverStatus is podStatus of a driver with a fault. The mutex is held.
func (s *simulator) faultyDriverStatus(pod *corev1.Pod, fault driverFault) corev1.PodStatus {
	container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image}
	switch fault {
	case driverCrashes:
		container.RestartCount = 4
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		if s.crashState != nil {
			container.State = *s.crashState
		}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "modprobe: ERROR: could not insert 'nvidia': No such device"}
	case driverHangs:
		container.State.Running = &corev1.ContainerStateRunning{}
	case driverImageMissing:
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "rpc error: code = NotFound desc = " + container.Image + ": not found"}
	}
	return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{container}}
}

// driverFaultOf returns the fault that is configured for the node or the image of a driver's pod. The mutex is held.
func (s *simulator) driverFaultOf(pod *corev1.Pod) driverFault {
	image := pod.Spec.Containers[0].Image
	for key, fault := range s.driverFaults {
		node, part, _ := strings.Cut(key, " ")
		if (node == "*" || node == pod.Spec.NodeName) && strings.Contains(image, part) {
			return fault
		}
	}
	return ""
}

// syncClaims is the ResourceClaim controller: it removes deleted pods from the reservations of claims, and
// deallocates a claim without reservations.
func (s *simulator) syncClaims(ctx context.Context, now *snapshot) error {
	for i := range now.claims.Items {
		claim := now.claims.Items[i].DeepCopy()
		var kept []resourceapi.ResourceClaimConsumerReference
		for _, r := range claim.Status.ReservedFor {
			live := slices.ContainsFunc(now.pods.Items, func(pod corev1.Pod) bool { return pod.UID == r.UID })
			if !live {
				pod, err := s.getLivePod(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: r.Name}, r.UID)
				if err != nil {
					return err
				}
				live = pod != nil
			}
			if live {
				kept = append(kept, r)
			}
		}
		if len(kept) == len(claim.Status.ReservedFor) {
			continue
		}
		claim.Status.ReservedFor = kept
		if len(kept) == 0 {
			claim.Status.Allocation = nil
		}
		if err := s.admin.Status().Update(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// syncStatuses reports the status of DaemonSets and Deployments, as their controllers do.
func (s *simulator) syncStatuses(ctx context.Context, now *snapshot) error {
	for i := range now.sets.Items {
		set := now.sets.Items[i].DeepCopy()
		want := appsv1.DaemonSetStatus{ObservedGeneration: set.Generation}
		for j := range now.nodes.Items {
			node := &now.nodes.Items[j]
			if !selectsNode(newDaemonPod(set, node.Name), node) {
				continue
			}
			want.DesiredNumberScheduled++
			if isPodReady(findOperandPod(now, node.Name, set.Name)) && (set.Name != "tessera-discovery" || s.isDiscovered(now, node.Name)) {
				want.NumberAvailable++
			}
		}
		if equality.Semantic.DeepEqual(set.Status, want) {
			continue
		}
		set.Status = want
		if err := s.admin.Status().Update(ctx, set); err != nil {
			return err
		}
	}
	for i := range now.deployments.Items {
		d := now.deployments.Items[i].DeepCopy()
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
		if err := s.admin.Status().Update(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// findOperandPod returns the pod of an operand on a node that is not being deleted, nil if there is none.
func findOperandPod(now *snapshot, node, operand string) *corev1.Pod {
	for i := range now.pods.Items {
		pod := &now.pods.Items[i]
		if pod.Spec.NodeName == node && pod.Labels["app.kubernetes.io/name"] == operand && pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return nil
}

func isPodReady(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
