package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// part is something that must be seen in the story of a sick GPU.
type part string

// The parts besides the steps of the remediation, which are parts by their names.
const (
	partTaint    part = "the taint of the GPU's devices"
	partStatus   part = "Unhealthy in the pod's status"
	partClaim    part = "the claim's condition Healthy: False"
	partEvicted  part = "the eviction of the pod"
	partReplaced part = "the replacement pod"
	partFree     part = "the end of the taint"
	partRecord   part = "the record in the GPUNode's history"
)

// sickbed tells what becomes of one GPU and of the pod that had it, a line each with the time since it fell ill. It is safe for concurrent use.
type sickbed struct {
	out   io.Writer
	began time.Time
	// now is the clock.
	now func() time.Time
	// node is where it is, gpu and uuid name it; app is the Deployment, pod its pod, claim that pod's.
	node, gpu, uuid, app, claim string
	pod                         types.UID
	// known are the records of the history that were there before.
	known []string

	mu     sync.Mutex
	slices map[string]resourceapi.ResourceSlice
	told   map[string]string
	seen   map[part]bool
	// news is closed and made anew whenever a part is seen; replacement is the pod that came.
	news        chan struct{}
	replacement *corev1.Pod
}

func (s *sickbed) begin() {
	s.began = s.now()
	s.slices, s.told, s.seen, s.news = map[string]resourceapi.ResourceSlice{}, map[string]string{}, map[part]bool{}, make(chan struct{})
}

// watch follows the cluster until ctx ends.
func (s *sickbed) watch(ctx context.Context, c *cluster.Cluster) error {
	failed := make(chan error, 4)
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.ResourceSliceList{}, s.slice) }()
	go func() { failed <- cluster.Follow(ctx, c, &corev1.PodList{}, s.user) }()
	go func() { failed <- cluster.Follow(ctx, c, &resourceapi.ResourceClaimList{}, s.condition) }()
	go func() { failed <- cluster.Follow(ctx, c, &v1alpha1.GPUNodeList{}, s.remedy) }()
	err := errors.Join(<-failed, <-failed, <-failed, <-failed)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return err
}

// await returns when all parts were seen. An error names the ones that were not.
func (s *sickbed) await(ctx context.Context, parts ...part) error {
	for {
		s.mu.Lock()
		missing := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return s.seen[p] })
		news := s.news
		s.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("wait for %q: %w", missing, context.Cause(ctx))
		}
	}
}

// say prints a line about something, unless it was the last that was said about it, and notes a part. The caller holds the lock.
func (s *sickbed) say(about, text string, seen part) {
	if s.told[about] != text {
		s.told[about] = text
		fmt.Fprintf(s.out, "  %6.1fs  %-10s %s\n", s.now().Sub(s.began).Seconds(), about, text) //nolint:errcheck // standard output
	}
	if seen != "" && !s.seen[seen] {
		s.seen[seen] = true
		close(s.news)
		s.news = make(chan struct{})
	}
}

// slice tells of the taints of the GPU's devices.
func (s *sickbed) slice(slice *resourceapi.ResourceSlice, deleted bool) bool {
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != s.node {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slices[slice.Name] = *slice
	if deleted {
		delete(s.slices, slice.Name)
	}
	var list []resourceapi.ResourceSlice
	for _, one := range s.slices {
		list = append(list, one)
	}
	for _, r := range wire.Read(list) {
		for _, g := range r.GPUs {
			if g.Name != s.gpu || !r.Complete {
				continue
			}
			taints, tainted := taintsOf(g)
			switch {
			case len(taints) > 0:
				s.say("taint", fmt.Sprintf("%s on %d devices of %s", strings.Join(taints, ", "), tainted, s.gpu), partTaint)
			case s.seen[partTaint]:
				s.say("taint", "gone: "+s.gpu+" is given to claims again", partFree)
			}
		}
	}
	return false
}

// taintsOf returns the taints of a GPU's devices, each once, and how many devices have any.
func taintsOf(g wire.PublishedGPU) (taints []string, tainted int) {
	for _, d := range g.Devices {
		for _, t := range d.Taints {
			text := t.Key
			if t.Value != "" {
				text += "=" + t.Value
			}
			taints = append(taints, text+":"+string(t.Effect))
		}
		if len(d.Taints) > 0 {
			tainted++
		}
	}
	slices.Sort(taints)
	return slices.Compact(taints), tainted
}

// user tells of the pod that had the GPU, and of the one in its place.
func (s *sickbed) user(pod *corev1.Pod, _ bool) bool {
	if pod.Labels["app"] != s.app {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod.UID != s.pod {
		if s.seen[partEvicted] && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			s.replacement = pod.DeepCopy()
			s.say("pod", fmt.Sprintf("%s runs on %s in its place", pod.Name, pod.Spec.NodeName), partReplaced)
		}
		return false
	}
	if s.seen[partEvicted] {
		return false
	}
	if pod.DeletionTimestamp != nil && evicted(pod) {
		s.say("pod", pod.Name+" is evicted", partEvicted)
		return false
	}
	if text := unhealthy(pod); text != "" {
		s.say("pod", pod.Name+": allocatedResourcesStatus of "+text, partStatus)
	}
	return false
}

// unhealthy is what the status of a pod says of a device that is not well; empty when it says nothing such.
func unhealthy(pod *corev1.Pod) string {
	for _, container := range pod.Status.ContainerStatuses {
		for _, status := range container.AllocatedResourcesStatus {
			for _, r := range status.Resources {
				if r.Health != corev1.ResourceHealthStatusUnhealthy {
					continue
				}
				text := fmt.Sprintf("%s: %s", status.Name, r.Health)
				if r.Message != nil {
					text += ": " + *r.Message
				}
				return text
			}
		}
	}
	return ""
}

// condition tells what the claim says of its device.
func (s *sickbed) condition(claim *resourceapi.ResourceClaim, deleted bool) bool {
	if claim.Name != s.claim || deleted {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range claim.Status.Devices {
		for _, condition := range d.Conditions {
			if condition.Type == "Healthy" && condition.Status == metav1.ConditionFalse {
				s.say("claim", fmt.Sprintf("%s: Healthy: False, %s: %s", claim.Name, condition.Reason, condition.Message), partClaim)
			}
		}
	}
	return false
}

// remedy tells how far the GPU's remediation is, and its end.
func (s *sickbed) remedy(node *v1alpha1.GPUNode, _ bool) bool {
	if node.Name != s.node {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, status := range node.Status.Remediations {
		if status.GPU == s.gpu {
			s.say("remedy", fmt.Sprintf("%s: %s", status.Step, oneLine(status.Message)), part(status.Step))
		}
	}
	for _, r := range node.Status.History {
		if r.GPU == s.gpu && !slices.Contains(s.known, r.ID) {
			text := fmt.Sprintf("%s: %s after %s: %s", strings.Join(r.Faults, ", "), r.Outcome, r.Ended.Sub(r.Began.Time), oneLine(r.Message))
			seen := part("")
			if r.Outcome == v1alpha1.OutcomeRecovered {
				seen = partRecord
			}
			s.say("history", text, seen)
		}
	}
	return false
}
