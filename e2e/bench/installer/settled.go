package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// examples is the number of nodes that are installed step by step; the others are copies of one of them.
const examples = 3

// example is a node in the state in which the installer left it: Ready.
type example struct {
	Node    *corev1.Node
	GPUNode *v1alpha1.GPUNode
	Pods    []corev1.Pod
}

// settle creates a fleet of Ready nodes: a few are installed, the others are written as copies while the installer is stopped.
func (b *bench) settle(ctx context.Context, s *stage) error {
	few := *b
	few.nodes = examples
	if _, _, err := few.bring(ctx, s); err != nil {
		return err
	}
	if err := b.calm(ctx, s); err != nil {
		return err
	}
	if err := s.freeze(ctx); err != nil {
		return err
	}
	e, err := s.example(ctx, nodeName(0))
	if err != nil {
		return err
	}
	b.Doing("writing %d nodes as %s is, with %d pods each", b.nodes-examples, e.Node.Name, len(e.Pods))
	began := time.Now()
	if err := b.spread(ctx, s, e); err != nil {
		return err
	}
	b.Doing("written after %v", time.Since(began).Round(time.Second))
	return nil
}

// freeze ends all processes but the API server and the bench. On a fleet in its desired state the controllers, the scheduler and kwok have no work, and
// without the controllers no leases of nodes are needed, which would be 500 writes per second.
func (s *stage) freeze(ctx context.Context) error {
	if err := s.installer.Terminate(); err != nil {
		return err
	}
	s.players.stop()
	s.kwok.Kill()
	return errors.Join(s.ControlPlane().StopService(ctx, recipe.ControllerManager), s.ControlPlane().StopService(ctx, recipe.Scheduler))
}

// example reads a node.
func (s *stage) example(ctx context.Context, name string) (*example, error) {
	e := &example{GPUNode: &v1alpha1.GPUNode{}}
	var err error
	if e.Node, err = s.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	if err := s.Kinds.Get(ctx, types.NamespacedName{Name: name}, e.GPUNode); err != nil {
		return nil, err
	}
	pods, err := s.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return nil, err
	}
	e.Pods = pods.Items
	return e, nil
}

// spread writes the other nodes.
func (b *bench) spread(ctx context.Context, s *stage, e *example) error {
	hardware, err := catalog.FindMachine(machine)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := examples; i < b.nodes; i++ {
		group.Go(func() error {
			copied, err := e.named(nodeName(i))
			if err != nil {
				return err
			}
			return s.write(ctx, hardware, copied)
		})
	}
	return group.Wait()
}

// named returns the example as another node: the name is part of labels and affinities and of the boot id.
func (e *example) named(name string) (*example, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	other := &example{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), e.Node.Name, name)), other); err != nil {
		return nil, fmt.Errorf("copy %s as %s: %w", e.Node.Name, name, err)
	}
	return other, nil
}

// write creates a node of a copy. The labels and the parts of the status have the same owners as on the example; the bench owns the spec of the GPUNode.
func (s *stage) write(ctx context.Context, hardware catalog.Machine, e *example) error {
	node := bare(e.Node.Name)
	node.Status = e.Node.Status
	if err := s.add(ctx, hardware, node, e.GPUNode.Spec); err != nil {
		return err
	}
	// The API server taints a new node until its controllers find it ready.
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": e.Node.Labels}, "spec": map[string]any{"taints": e.Node.Spec.Taints}})
	if err != nil {
		return err
	}
	if err := s.Kinds.Patch(ctx, node, client.RawPatch(types.MergePatchType, text), client.FieldOwner(account)); err != nil {
		return err
	}
	status := e.GPUNode.Status
	for i := range e.Pods {
		uid, err := s.run(ctx, &e.Pods[i])
		if err != nil {
			return err
		}
		if e.Pods[i].Labels["app.kubernetes.io/name"] == agent {
			status.Agent.PodUID = string(uid)
		}
	}
	if err := s.writeStatus(ctx, node.Name, agent, map[string]any{"agent": status.Agent}); err != nil {
		return err
	}
	// The spec of a copy is written once.
	status.ObservedGeneration = 1
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = 1
	}
	status.Hardware, status.Agent = nil, nil
	return s.writeStatus(ctx, node.Name, account, status)
}

// run creates a pod of a DaemonSet on its node and writes that it runs.
func (s *stage) run(ctx context.Context, pod *corev1.Pod) (types.UID, error) {
	made, err := s.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: pod.GenerateName, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
	}, Spec: pod.Spec}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	made.Status = pod.Status
	_, err = s.Client.CoreV1().Pods(namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return made.UID, err
}

// restart starts the installer on the fleet and counts its requests until it is at rest.
func (b *bench) restart(ctx context.Context, s *stage) error {
	b.Doing("starting the installer on %d nodes", b.nodes)
	began := time.Now()
	if err := s.startInstaller(ctx); err != nil {
		return err
	}
	took, err := b.looked(ctx, s)
	if err != nil {
		return err
	}
	if err := b.calm(ctx, s); err != nil {
		return err
	}
	c, err := s.audit.between(ctx, began, time.Now())
	if err != nil {
		return err
	}
	b.Add(
		report.Figure("restart, requests for a node", b.each(c.total()), "requests"),
		report.Figure("restart, writes", float64(c.Writes), "requests"),
		report.Figure("restart, until every node was looked at", took.Seconds(), "s"),
	)
	b.Note("restart: %d reads, %d writes, %d watches: %v", c.Reads, c.Writes, c.Watches, c.Kinds)
	return b.checkReady(ctx, s)
}

// looked waits until the installer has reconciled every node.
func (b *bench) looked(ctx context.Context, s *stage) (time.Duration, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, errors.New("the restart takes too long"))
	defer cancel()
	for {
		p, err := s.reconciles(ctx, "node")
		if err == nil && p.count >= b.nodes {
			return time.Since(began), nil
		}
		if gone := errors.Join(s.installer.Alive(), sleep(ctx, time.Second)); gone != nil {
			return 0, errors.Join(gone, err)
		}
	}
}

// checkReady returns an error when the installer reports a node as not Ready.
func (b *bench) checkReady(ctx context.Context, s *stage) error {
	phases, err := s.phases(ctx)
	if err == nil && !b.all(v1alpha1.PhaseReady)(phases) {
		err = fmt.Errorf("the nodes are no longer Ready: %v", phases)
	}
	return err
}
