// Package drain finds the pods that hold GPUs and evicts them.
package drain

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/report"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// Drainer reads pods that hold GPUs from the API server, evicts them, and keeps refused evictions in memory: after a restart each eviction is requested
// again. It is safe for concurrent use.
type Drainer struct {
	live    client.Reader
	evict   func(context.Context, []action.PodRef) ([]action.RefusedEviction, error)
	refused *refusedEvictions
	events  report.Recorder
	metrics *report.Metrics
}

// New returns a Drainer that reads and evicts through the cluster's live client.
func New(cluster action.Cluster, events report.Recorder, metrics *report.Metrics) *Drainer {
	return &Drainer{live: cluster.Live, evict: cluster.EvictPods, refused: newRefusedEvictions(), events: events, metrics: metrics}
}

// Inspect reads the pods that hold GPUs and returns what the phase table needs of them, and the pods to evict: those that are not being deleted and that
// the specification does not exclude. A pod that cannot be read counts as a holder that cannot be evicted.
//
// began is when the drain of the devices began; zero where schedulers start no pods on them, as on a cordoned node. A pod that is younger, with a claim that
// is older, replaces an evicted pod. It is evicted after the settling time if it is older than that, and blocks the drain otherwise.
func (d *Drainer) Inspect(ctx context.Context, users Users, spec v1alpha1.DrainSpec, began, now time.Time) (phase.Drain, []action.PodRef) {
	drain := phase.Drain{Unreadable: users.Unreadable}
	var victims []action.PodRef
	waited, err := metav1.LabelSelectorAsSelector(spec.WaitFor)
	if err != nil {
		waited = labels.Nothing()
	}
	for _, key := range users.Pods {
		pod, err := action.ReadConsumer(ctx, d.live, key, users.UIDs[key]...)
		if err != nil {
			drain.Unreadable = true
			drain.Holders = append(drain.Holders, key.String())
			continue
		}
		if pod == nil {
			continue
		}
		drain.Holders = append(drain.Holders, key.String())
		if pod.DeletionTimestamp != nil {
			drain.Leaving = append(drain.Leaving, key.String())
			continue
		}
		if blocks, settles := replacement(pod, users.Claimed[key], began, now); blocks || settles {
			if blocks {
				drain.Blocked = append(drain.Blocked, phase.BlockedPod{Name: key.String(), Reason: replaces})
			}
			continue
		}
		if waited.Matches(labels.Set(pod.Labels)) {
			drain.Waited = append(drain.Waited, key.String())
		}
		if victim := d.addPod(&drain, key, pod, spec); victim != nil {
			victims = append(victims, *victim)
		}
	}
	return drain, victims
}

// settling is the time from the start of a drain after which schedulers have received that the devices are out of service: an agent confirms an order before
// its ResourceSlices are published. A scheduler without our plugin ignores that, and places the replacement of an evicted pod on the devices of its claim,
// again after each eviction. The agent refuses to prepare the claim, unless the evicted pod is still ending: then kubelet starts the replacement with the
// claim that is prepared.
const settling = 10 * time.Second

// replacement reports whether the pod replaces one that was evicted since the drain began, and whether it blocks the drain or may leave the devices until the
// settling time is over. claimed is when its claim was created.
func replacement(pod *corev1.Pod, claimed, began, now time.Time) (blocks, settles bool) {
	if began.IsZero() || !pod.CreationTimestamp.After(began) || !claimed.Before(began) {
		return false, false
	}
	settled := began.Add(settling)
	blocks = !pod.CreationTimestamp.Time.Before(settled)
	return blocks, !blocks && now.Before(settled)
}

// replaces is why a pod that replaces an evicted one is not evicted.
const replaces = "it replaces an evicted pod, and its claim stays allocated while pods use it; scale its controller down, or use a ResourceClaimTemplate"

// addPod adds a pod that runs to the drain as blocked where it is, and returns it as a victim unless it must not be evicted.
func (d *Drainer) addPod(drain *phase.Drain, key types.NamespacedName, pod *corev1.Pod, spec v1alpha1.DrainSpec) *action.PodRef {
	if reason := evictionBlocker(pod, spec); reason != "" {
		blocked := phase.BlockedPod{Name: key.String(), Reason: reason}
		drain.Staying, drain.Blocked = append(drain.Staying, blocked), append(drain.Blocked, blocked)
		return nil
	}
	if reason := d.refused.reason(pod.UID); reason != "" {
		drain.Blocked = append(drain.Blocked, phase.BlockedPod{Name: key.String(), Reason: reason})
	}
	return &action.PodRef{Namespace: key.Namespace, Name: key.Name, UID: pod.UID}
}

// Evict requests the eviction of each pod once, and keeps those that were refused under the key, which is that of a node or of a GPU. object gets the
// Event.
func (d *Drainer) Evict(ctx context.Context, object client.Object, key string, victims []action.PodRef) error {
	refused, err := d.evict(ctx, victims)
	d.refused.set(key, refused)
	d.metrics.AddEvictions(0, len(refused))
	if done := len(victims) - len(refused); done > 0 && err == nil {
		d.metrics.AddEvictions(done, 0)
		var names []string
		for _, v := range victims {
			names = append(names, v.Namespace+"/"+v.Name)
		}
		d.events.Event(object, corev1.EventTypeNormal, "Evicting", "Evict", "Evicting pods that use GPUs: "+strings.Join(names, ", "))
	}
	return err
}

// Clear removes the refused evictions of a key.
func (d *Drainer) Clear(key string) { d.refused.set(key, nil) }

// evictionBlocker returns why a pod must not be evicted, or an empty text.
func evictionBlocker(pod *corev1.Pod, spec v1alpha1.DrainSpec) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case pod.Labels[v1alpha1.LabelSkipDrain] == "true":
		return "its label " + v1alpha1.LabelSkipDrain + " excludes it from eviction; delete the pod, or remove the label"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is a static pod; remove its manifest from the node"
	case owner != nil && owner.Kind == "DaemonSet":
		return "DaemonSet " + owner.Name + " would recreate it; exclude the node from the DaemonSet's selector, or delete the DaemonSet"
	case owner == nil && !spec.Force:
		return "no controller would recreate it; delete it, or set drain.force"
	case spec.DeleteEmptyDir != nil && !*spec.DeleteEmptyDir && hasEmptyDir(pod):
		return "its emptyDir data would be lost; delete it, or set drain.deleteEmptyDir"
	}
	return ""
}

func hasEmptyDir(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
}
