package plugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// heldState is a CycleState whose lock is held until free is closed.
type heldState struct {
	fwk.CycleState
	free chan struct{}
}

func (s heldState) Read(key fwk.StateKey) (fwk.StateData, error) {
	<-s.free
	return s.CycleState.Read(key)
}

func (s heldState) Write(key fwk.StateKey, data fwk.StateData) {
	<-s.free
	s.CycleState.Write(key, data)
}

// Each call of the scheduling cycle that is blocked by a lock is found, and none that has ended.
func TestAwaitHangFindsBlockedCalls(t *testing.T) {
	f := NewFactory()
	f.cycles.Limit = time.Millisecond
	objects, nodes := hardware(t, 1, "gpu")
	s := newSite(t, objects, nodes, func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) { return f.New(ctx, nil, h) })
	p, ok := s.plugin.(*Plugin)
	if !ok {
		t.Fatalf("the plugin is a %T", s.plugin)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "pod"}}
	info := framework.NewNodeInfo()
	info.SetNode(nodes[0])
	for name, call := range map[string]func(context.Context, fwk.CycleState){
		"PreFilter":  func(ctx context.Context, cs fwk.CycleState) { p.PreFilter(ctx, cs, pod, nil) },
		"Filter":     func(ctx context.Context, cs fwk.CycleState) { p.Filter(ctx, cs, pod, info) },
		"PostFilter": func(ctx context.Context, cs fwk.CycleState) { _, _ = p.PostFilter(ctx, cs, pod, nil) },
		"Reserve":    func(ctx context.Context, cs fwk.CycleState) { p.Reserve(ctx, cs, pod, nodes[0].Name) },
	} {
		cs := heldState{framework.NewCycleState(), make(chan struct{})}
		running, end := context.WithCancel(t.Context())
		go func() {
			defer end()
			call(t.Context(), cs)
		}()
		if err := f.AwaitHang(running); err == nil {
			t.Errorf("a blocked call of %s is not found", name)
		}
		close(cs.free)
		<-running.Done()
		if err := f.cycles.Check(); err != nil {
			t.Errorf("after %s has ended: %v", name, err)
		}
	}
}

// Calls that follow each other are no hang, however many.
func TestAwaitHangIgnoresBusyCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFactory()
		ctx, cancel := context.WithCancel(t.Context())
		found := make(chan error, 1)
		go func() { found <- f.AwaitHang(ctx) }()
		for range 100 {
			end := f.cycles.Begin()
			<-time.After(30 * time.Second)
			end()
		}
		cancel()
		if err := <-found; err != nil {
			t.Error(err)
		}
	})
}
