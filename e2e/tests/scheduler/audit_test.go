package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// audit checks what the API server has: what is allocated can be held together, and every pod that has a
// node has its claims there.
func audit(t *testing.T) {
	t.Helper()
	readings := read(t)
	claims := map[string]resourceapi.ResourceClaim{}
	list, err := shared.Client.ResourceV1().ResourceClaims(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ledger := ledger{readings: readings, held: map[string]gpu.Occupancy{}}
	for _, c := range list.Items {
		claims[c.Name] = c
		if err := ledger.take(c); err != nil {
			t.Errorf("claim %s: %v", c.Name, err)
		}
	}
	pods, err := shared.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, name := range claimsOf(&p) {
			if err := ledger.serves(&p, claims[name]); p.Spec.NodeName != "" && err != nil {
				t.Errorf("pod %s on %s: %v", p.Name, p.Spec.NodeName, err)
			}
		}
		if p.Spec.NodeName != "" && len(claimsOf(&p)) == 0 {
			t.Errorf("pod %s is bound without a claim", p.Name)
		}
	}
}

// read reads what the nodes publish.
func read(t *testing.T) []wire.Reading {
	t.Helper()
	list, err := shared.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return wire.Read(list.Items)
}

// claimsOf returns the names of the pod's claims, of the one for its extended resources too.
func claimsOf(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.ResourceClaims {
		names = append(names, *c.ResourceClaimName)
	}
	if status := p.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	}
	return names
}

// ledger adds up what claims hold of every GPU.
type ledger struct {
	readings []wire.Reading
	held     map[string]gpu.Occupancy
}

// take enters what the claim holds; an error names the conflict.
func (l ledger) take(c resourceapi.ResourceClaim) error {
	if c.Status.Allocation == nil {
		return nil
	}
	for _, result := range c.Status.Allocation.Devices.Results {
		r, err := l.reading(result.Pool)
		if err != nil {
			return err
		}
		device, err := r.Decode(result)
		if err != nil {
			return err
		}
		g, _, err := r.Find(result.Device)
		if err != nil {
			return err
		}
		key := r.Node + "/" + g.Name
		before, known := l.held[key]
		if !known {
			before = g.GPU.Empty(g.Shares)
		}
		after, err := before.Take(device.Use)
		if err != nil {
			return fmt.Errorf("hold %s of %s: %w", result.Device, key, err)
		}
		l.held[key] = after
	}
	return nil
}

func (l ledger) reading(pool string) (wire.Reading, error) {
	i := slices.IndexFunc(l.readings, func(r wire.Reading) bool { return r.Pool == pool })
	if i < 0 {
		return wire.Reading{}, fmt.Errorf("pool %s is not published", pool)
	}
	return l.readings[i], nil
}

// serves checks that the claim is reserved for the pod and lies on its node.
func (l ledger) serves(p *corev1.Pod, c resourceapi.ResourceClaim) error {
	if c.Status.Allocation == nil {
		return fmt.Errorf("claim %q holds nothing", c.Name)
	}
	if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == p.UID }) {
		return fmt.Errorf("claim %s is not reserved for the pod", c.Name)
	}
	for _, result := range c.Status.Allocation.Devices.Results {
		if r, err := l.reading(result.Pool); err != nil || r.Node != p.Spec.NodeName {
			return fmt.Errorf("claim %s holds %s of pool %s", c.Name, result.Device, result.Pool)
		}
	}
	return nil
}

// nothingAssumed checks that every GPU of the cluster is free in the scheduler's cache: pods that request
// all of a node's GPUs are bound, by count on the first nodes and by "all" on the last. It clears the
// cluster before and after.
func nothingAssumed(t *testing.T) {
	t.Helper()
	clearAll(t)
	readings := read(t)
	for i, r := range readings {
		name := fmt.Sprintf("everything-%d", i)
		everything := request(wholeClass, int64(len(r.GPUs)))
		if i == len(readings)-1 {
			everything.Exactly.AllocationMode, everything.Exactly.Count = resourceapi.DeviceAllocationModeAll, 0
		}
		p := pod(name, name)
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: r.Node}
		mustCreate(t, claim(name, everything), p)
	}
	bound(t, len(readings))
	audit(t)
	clearAll(t)
}

// pending waits until the scheduler has refused so many pods.
func pending(t *testing.T, pods int) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		list, err := shared.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		have := 0
		for _, p := range list.Items {
			if p.Spec.NodeName == "" && conditionOf(&p) != "" {
				have++
			}
		}
		if have != pods {
			return fmt.Errorf("%d pods are refused, want %d", have, pods)
		}
		return nil
	})
}
