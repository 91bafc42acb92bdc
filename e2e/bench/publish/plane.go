package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// times measures the time from the publisher's start until the API server has a node's slices.
func (b *bench) times(ctx context.Context) error {
	plane, err := b.fresh(ctx)
	if err != nil {
		return err
	}
	defer plane.Stop()
	client, err := connect(plane)
	if err != nil {
		return err
	}
	b.Doing("publishing a node, %d times", b.publications)
	var samples report.Samples
	for i := range b.publications {
		took, err := publication(ctx, client, fmt.Sprintf("node-%d", i))
		if err != nil {
			return err
		}
		samples = append(samples, took)
	}
	b.Add(report.Figure(fmt.Sprintf("publish a node until the API server has it, median of %d", b.publications), report.Milliseconds(samples.Median()), "ms"))
	return nil
}

// connect returns a client with the agent's settings.
func connect(plane *harness.Plane) (kubernetes.Interface, error) {
	access, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	access.ContentType, access.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(access)
}

// steady is an inventory without changes.
type steady gpu.Node

func (s steady) Watch() (gpu.Node, bool, <-chan struct{}) { return gpu.Node(s), true, nil }

// publication publishes one node with the agent's own publisher.
func publication(ctx context.Context, client kubernetes.Interface, name string) (took time.Duration, err error) {
	n, err := node(name)
	if err != nil {
		return 0, err
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	options, err := options(v1alpha1.Compact)
	if err != nil {
		return 0, err
	}
	publisher := publish.New(publish.Config{Node: name, Client: client, Inventory: steady(n), Options: options})
	ctx, end := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return publisher.Run(ctx) })
	defer func() {
		end()
		err = errors.Join(err, group.Wait())
	}()
	begin := time.Now()
	err = harness.Poll(ctx, publisher.Accepted)
	return time.Since(begin), err
}

// heaps measures the memory that a node costs the API server, which caches all objects.
func (b *bench) heaps(ctx context.Context, sets []set) error {
	costs := map[string]heap{}
	for _, s := range sets {
		cost, err := b.heap(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		costs[s.name] = cost
	}
	for _, s := range sets {
		if s.heap == 0 {
			continue
		}
		name := fmt.Sprintf("live heap of the API server per node, %s set, %d nodes", s.name, b.nodes)
		b.Add(
			report.Figure(name, costs[s.name].once, "MB").AtMost(s.heap).Peer(nvidia, costs[nvidia].once),
			report.Figure(name+", each published twice", costs[s.name].twice, "MB").AtMost(s.heap).Peer(nvidia, costs[nvidia].twice),
		)
	}
	return nil
}

// heap is the cost of a node in MB: after it was published once, and after its slices were replaced,
// while the API server keeps the old ones for its watchers.
type heap struct{ once, twice float64 }

// heap measures a set, each with a separate API server.
func (b *bench) heap(ctx context.Context, s set) (heap, error) {
	plane, err := b.fresh(ctx)
	if err != nil {
		return heap{}, err
	}
	defer plane.Stop()
	client, err := connect(plane)
	if err != nil {
		return heap{}, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	if err := watch(ctx, client); err != nil {
		return heap{}, err
	}
	before, err := live(ctx, plane)
	if err != nil {
		return heap{}, err
	}
	var costs [2]float64
	for generation := range costs {
		b.Doing("%s set: publishing %d nodes, generation %d", s.name, b.nodes, generation+1)
		if err := b.write(ctx, client, s, int64(generation)+1); err != nil {
			return heap{}, err
		}
		after, err := live(ctx, plane)
		if err != nil {
			return heap{}, err
		}
		costs[generation] = float64(after-before) / 1e6 / float64(b.nodes)
	}
	return heap{once: costs[0], twice: costs[1]}, nil
}

// watch watches all slices until ctx ends, as a scheduler does.
func watch(ctx context.Context, client kubernetes.Interface) error {
	watching, err := client.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch slices: %w", err)
	}
	go func() {
		<-ctx.Done()
		watching.Stop()
	}()
	go func() {
		for range watching.ResultChan() { //nolint:revive // a scheduler would process them
		}
	}()
	return nil
}

// writers is the number of nodes that are written concurrently.
const writers = 8

// write creates the slices of every node, or replaces them from the second generation on.
func (b *bench) write(ctx context.Context, client kubernetes.Interface, s set, generation int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range b.nodes {
		group.Go(func() error {
			objects, err := s.objects(fmt.Sprintf("ip-10-0-%d-%d.example.com", i/256, i%256))
			for _, o := range objects {
				o.Spec.Pool.Generation = generation
				err = errors.Join(err, put(ctx, client, &o))
			}
			return err
		})
	}
	return group.Wait()
}

func put(ctx context.Context, client kubernetes.Interface, slice *resourceapi.ResourceSlice) error {
	slices := client.ResourceV1().ResourceSlices()
	if slice.Spec.Pool.Generation == 1 {
		_, err := slices.Create(ctx, slice, metav1.CreateOptions{})
		return err
	}
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	return err
}

// live returns the memory of the API server after a collection, in bytes: Go's profile of the heap
// runs one and ends with the statistics of the runtime.
func live(ctx context.Context, plane *harness.Plane) (int64, error) {
	const collections = 3 // what a finalizer frees goes with the next, caches of requests with the third
	var held int64
	for range collections {
		stream, err := plane.Client.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").
			Param("gc", "1").Param("debug", "1").Stream(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the heap of the API server: %w", err)
		}
		text, err := io.ReadAll(stream)
		if err := errors.Join(err, stream.Close()); err != nil {
			return 0, fmt.Errorf("read the heap of the API server: %w", err)
		}
		if held, err = allocated(string(text)); err != nil {
			return 0, err
		}
	}
	return held, nil
}

// allocated finds the size of the heap's objects in a profile.
func allocated(profile string) (int64, error) {
	const key = "# HeapAlloc = "
	_, rest, found := strings.Cut(profile, key)
	var bytes int64
	if _, err := fmt.Sscan(rest, &bytes); !found || err != nil {
		return 0, errors.New("the profile of the API server's heap does not contain HeapAlloc")
	}
	return bytes, nil
}
