package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// agent is the name of the node agent's pods and of its user agent.
const agent = "tessera-node"

// players simulate the node agents of the fleet: each writes the agent's status when its pod is ready, and
// acknowledges maintenance.
type players struct {
	stage  *stage
	cancel context.CancelFunc
	ended  func()
	// failed is the first error.
	mutex  sync.Mutex
	failed error
}

// play starts them.
func play(ctx context.Context, s *stage) *players {
	ctx, cancel := context.WithCancel(ctx)
	p := &players{stage: s, cancel: cancel}
	pods := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app.kubernetes.io/name=" + agent }))
	nodes := dynamicinformer.NewDynamicSharedInformerFactory(s.Dynamic, 0)
	p.follow(pods.Core().V1().Pods().Informer(), func(object any) error { return p.report(ctx, object) })
	p.follow(nodes.ForResource(v1alpha1.GroupVersion.WithResource("gpunodes")).Informer(), func(object any) error { return p.acknowledge(ctx, object) })
	pods.Start(ctx.Done())
	nodes.Start(ctx.Done())
	p.ended = func() { pods.Shutdown(); nodes.Shutdown() }
	return p
}

// follow handles every object and every change.
func (p *players) follow(informer cache.SharedIndexInformer, answer func(object any) error) {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.note(answer(object)) },
		UpdateFunc: func(_, object any) { p.note(answer(object)) },
	})
	p.note(err)
}

func (p *players) stop() {
	p.cancel()
	p.ended()
}

func (p *players) note(err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.failed == nil && err != nil && !errors.Is(err, context.Canceled) {
		p.failed = err
	}
}

// err returns the first error of the players.
func (p *players) err() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.failed
}

// report writes the status of the agent in the pod once that is ready.
func (p *players) report(ctx context.Context, object any) error {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return nil
	}
	node := &v1alpha1.GPUNode{}
	if err := p.stage.Kinds.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node); err != nil {
		return fmt.Errorf("report for %s: %w", pod.Spec.NodeName, err)
	}
	status := v1alpha1.AgentStatus{Version: "bench", PodUID: string(pod.UID), BootID: node.Status.Hardware.BootID, Ready: true}
	if node.Spec.Driver != nil {
		status.DriverVersion, status.GPUs, status.Product = node.Spec.Driver.Version, gpusPerNode, "Tesla T4"
	}
	if node.Spec.Maintenance != nil {
		status.Maintenance, status.PreparedClaims = node.Spec.Maintenance.ID, new(int32)
	}
	return p.stage.writeStatus(ctx, node.Name, agent, map[string]any{"agent": status})
}

// acknowledge repeats the ID of a node's maintenance, and removes it when the maintenance is over.
func (p *players) acknowledge(ctx context.Context, object any) error {
	content, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	node := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, node); err != nil {
		return err
	}
	if node.Status.Agent == nil {
		return nil
	}
	status := *node.Status.Agent
	switch {
	case node.Spec.Maintenance != nil && node.Spec.Maintenance.ID != status.Maintenance:
		status.Maintenance, status.PreparedClaims = node.Spec.Maintenance.ID, new(int32)
	case node.Spec.Maintenance == nil && status.Maintenance != "":
		status.Maintenance, status.PreparedClaims = "", nil
	default:
		return nil
	}
	return p.stage.writeStatus(ctx, node.Name, agent, map[string]any{"agent": status})
}

// await waits until done returns true for the phases of the fleet, and prints progress.
func (b *bench) await(ctx context.Context, s *stage, what string, done func(map[v1alpha1.NodePhase]int) bool) (time.Duration, error) {
	began, last := time.Now(), ""
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("%s takes too long", what))
	defer cancel()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		phases, err := s.phases(ctx)
		if err = errors.Join(err, s.players.err(), s.installer.Alive(), s.kwok.Alive()); err != nil {
			return 0, fmt.Errorf("%s: %w (%v): %w", what, context.Cause(ctx), phases, err)
		}
		if done(phases) {
			return time.Since(began), nil
		}
		if text := strings.TrimPrefix(fmt.Sprint(phases), "map"); text != last {
			last = text
			b.Doing("%s: %s after %v", what, text, time.Since(began).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: %w: %v", what, context.Cause(ctx), phases)
		case <-tick.C:
		}
	}
}

// phases counts the nodes by phase.
func (s *stage) phases(ctx context.Context) (map[v1alpha1.NodePhase]int, error) {
	nodes := &v1alpha1.GPUNodeList{}
	if err := s.Kinds.List(ctx, nodes); err != nil {
		return nil, err
	}
	phases := map[v1alpha1.NodePhase]int{}
	for i := range nodes.Items {
		phases[nodes.Items[i].Status.Phase]++
	}
	return phases, nil
}
