package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// together runs the work for the numbers from 0 at once.
func together(t *testing.T, n int, work func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = work(i) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestMorePodsThanRoom has pods of two profiles come at once, more than there are slices.
func TestMorePodsThanRoom(t *testing.T) {
	const room, pods, ending = 28, 40, 5
	nodes(t, "h100x2", "h100x2")
	schedule(t, untouched)
	together(t, pods, func(i int) error {
		name := fmt.Sprintf("small-%d", i)
		p := pod(name, name)
		if i%2 == 1 {
			p.Spec.SchedulerName = "tessera-scheduler"
		}
		return errors.Join(create(t.Context(), claim(name, request(smallClass, 1))), create(t.Context(), p))
	})
	bound(t, room)
	pending(t, pods-room)
	audit(t)
	list, err := shared.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, p := range list.Items {
		if p.Spec.NodeName == "" || ended == ending {
			continue
		}
		ended++
		if err := shared.Client.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, now); err != nil {
			t.Fatal(err)
		}
	}
	pending(t, pods-room-ending)
	bound(t, room)
	audit(t)
	nothingAssumed(t)
}

// TestFailingWrites has each write fail in every way, once each: refused for a conflict, for an error of
// the server, lost on the way there, and taken with the answer lost on the way back.
func TestFailingWrites(t *testing.T) {
	nodes(t, "h100x2", "h100x2")
	conflict := func() error {
		return apierrors.NewConflict(schema.GroupResource{}, "it", errors.New("changed in between"))
	}
	internal := func() error { return apierrors.NewInternalError(errors.New("no leader")) }
	late := func() error { return apierrors.NewServerTimeout(schema.GroupResource{}, "update", 0) }
	for _, write := range []string{"PUT resourceclaims", "POST resourceclaims", "PUT resourceclaims/status", "PATCH pods/status", "POST pods/binding"} {
		t.Run(write, func(t *testing.T) {
			written := &count{place: "before " + write}
			s := schedule(t, all(written.seam,
				at("before "+write, 1, conflict), at("before "+write, 2, conflict), at("before "+write, 3, internal),
				at("before "+write, 4, broken), at("before "+write, 5, late), at("after "+write, 2, broken)))
			defer s.stop()
			pods := crowd(t)
			bound(t, pods)
			audit(t)
			nothingAssumed(t)
			if got := written.passed.Load(); got < 7 {
				t.Errorf("%d writes, want at least 7: six fail", got)
			}
		})
	}
}

// TestLostAnswer has the API server allocate devices without the scheduler being informed: the answer is lost, no event arrives, and the first
// reads fail. The devices must not be allocated again. The pod itself is not retried, since it would hold others meanwhile.
func TestLostAnswer(t *testing.T) {
	nodes(t, "h100x2")
	mustCreate(t, claim("small", request(smallClass, 1)), claim("all", request(wholeClass, 2)))
	blocked, resumed := make(chan struct{}), make(chan struct{})
	begun, closed := make(chan running, 1), make(chan error, 1)
	begun <- schedule(t, all(
		at("before PUT resourceclaims/status", 1, func() error {
			closed <- errors.Join(taint(t.Context(), "node-0", closing), (<-begun).sees(t.Context(), "node-0", 1))
			close(blocked)
			return nil
		}),
		at("after PUT resourceclaims/status", 1, broken),
		at("before GET resourceclaims", 1, broken), at("before GET resourceclaims", 2, broken),
		func(place string) error {
			select {
			case <-blocked:
				if place == "WATCH resourceclaims" {
					<-resumed
				}
			default:
			}
			return nil
		}))
	resume := sync.OnceFunc(func() { close(resumed) })
	t.Cleanup(resume) // before the scheduler ends
	mustCreate(t, pod("small", "small"))
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	pending(t, 1)
	other := pod("all", "all")
	other.Spec.Tolerations = []corev1.Toleration{{Key: closing.Key, Operator: corev1.TolerationOpExists}}
	mustCreate(t, other)
	pending(t, 2)
	resume()
	if err := taint(t.Context(), "node-0"); err != nil {
		t.Fatal(err)
	}
	bound(t, 1)
	pending(t, 1)
	audit(t)
	nothingAssumed(t)
}

// TestGivenUp deletes a pod while its allocation is on the way to the API server, where it never arrives. What was reserved for it is free for the
// pod that waits for that, though no claim has changed.
func TestGivenUp(t *testing.T) {
	nodes(t, "h100x2")
	reserved, refused, deleted := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	schedule(t, at("before PUT resourceclaims/status", 1, func() error {
		close(reserved)
		select {
		case <-refused:
		case <-t.Context().Done():
		}
		deleted <- shared.Client.CoreV1().Pods(namespace).Delete(t.Context(), "a", now)
		return errBroken
	}))
	run(t, "a", wholeClass, 2)
	select {
	case <-reserved:
	case <-time.After(harness.Patience):
		t.Fatal("nothing is written")
	}
	run(t, "b", wholeClass, 2)
	pending(t, 1)
	close(refused)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	bound(t, 1)
	audit(t)
	nothingAssumed(t)
}

// TestPreemptedWhileItIsWritten preempts a pod, as schedulers do with one that is not bound yet, while its allocation is written. The write is not
// canceled: its outcome would be unknown.
func TestPreemptedWhileItIsWritten(t *testing.T) {
	nodes(t, "h100x2")
	begun, preempted := make(chan running, 1), make(chan error, 1)
	answered := &count{place: "after PUT resourceclaims/status"}
	begun <- schedule(t, all(answered.seam,
		at("before PUT resourceclaims/status", 1, func() error {
			preempted <- (<-begun).preempt(t.Context(), "a")
			return nil
		}),
		at("before Unreserve", 1, func() error {
			if answered.passed.Load() == 0 {
				t.Error("the pod is given up before the API server has answered")
			}
			return nil
		})))
	run(t, "a", wholeClass, 2)
	if err := <-preempted; err != nil {
		t.Fatal(err)
	}
	bound(t, 1)
	audit(t)
	nothingAssumed(t)
}

// closing keeps pods from a node.
var closing = corev1.Taint{Key: "closed", Effect: corev1.TaintEffectNoSchedule}

// TestClaimChangesBeforeItIsAllocated lets another client change the claim just before its allocation is written, so that the API server rejects
// that write.
func TestClaimChangesBeforeItIsAllocated(t *testing.T) {
	nodes(t, "h100x2")
	label := func() error {
		patch := []byte(`{"metadata":{"labels":{"changed":"true"}}}`)
		_, err := shared.Client.ResourceV1().ResourceClaims(namespace).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	written := &count{place: "before PUT resourceclaims/status"}
	schedule(t, all(written.seam, at(written.place, 1, label)))
	run(t, "a", wholeClass, 2)
	bound(t, 1)
	audit(t)
	if got := written.passed.Load(); got != 2 {
		t.Errorf("the allocation was written %d times, want 2", got)
	}
	nothingAssumed(t)
}

// TestNodeGoesWhileReserved takes the node away between Reserve and the writes of a pod, with and without
// an error that has the pod start over.
func TestNodeGoesWhileReserved(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		// class and count are what the next pod needs of the node.
		class string
		count int64
	}{
		"and the pod is bound":    {nil, smallClass, 1},
		"and the pod starts over": {errBroken, wholeClass, 2},
	} {
		t.Run(name, func(t *testing.T) {
			nodes(t, "h100x2")
			begun, gone := make(chan running, 1), make(chan error, 1)
			s := schedule(t, at("before PUT resourceclaims/status", 1, func() error {
				gone <- errors.Join(removeNode(t.Context(), "node-0"), (<-begun).dropped(t.Context(), "node-0"))
				return test.answer
			}))
			defer s.stop()
			begun <- s
			run(t, "a", wholeClass, 1)
			if err := <-gone; err != nil {
				t.Fatal(err)
			}
			if test.answer != nil {
				addNode(t, "node-1", "h100x2")
			}
			bound(t, 1)
			run(t, "b", test.class, test.count)
			pending(t, 1)
			addNode(t, "node-0", "h100x2")
			bound(t, 2)
			audit(t)
			nothingAssumed(t)
		})
	}
}

// removeNode removes the node and what it publishes.
func removeNode(ctx context.Context, name string) error {
	return errors.Join(
		shared.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
		shared.Client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}))
}

// TestSlicesRepublished publishes the slices of the nodes repeatedly while pods are scheduled.
func TestSlicesRepublished(t *testing.T) {
	const generations, pods = 12, 24
	machines := []string{"h100x2", "h100x2"}
	nodes(t, machines...)
	schedule(t, untouched)
	together(t, 2, func(side int) error {
		if side == 0 {
			for i := range pods {
				name := fmt.Sprintf("small-%d", i)
				if err := errors.Join(create(t.Context(), claim(name, request(smallClass, 1))), create(t.Context(), pod(name, name))); err != nil {
					return err
				}
			}
			return nil
		}
		for generation := range generations {
			for i, machine := range machines {
				if err := republish(t, fmt.Sprintf("node-%d", i), machine, int64(generation+2)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	bound(t, pods)
	audit(t)
	nothingAssumed(t)
}

// republish publishes a new generation of the node's slices, one slice after the other.
func republish(t *testing.T, node, machine string, generation int64) error {
	client := shared.Client.ResourceV1().ResourceSlices()
	for _, s := range published(t, node, machine, generation) {
		known, err := client.Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		known.Spec = s.Spec
		if _, err := client.Update(t.Context(), known, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
