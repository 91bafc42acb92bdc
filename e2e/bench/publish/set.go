package main

import (
	"encoding/json"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// nodeName has the typical length of a node's name.
const nodeName = "ip-10-0-0-1.example.com"

// set is a way to publish a node.
type set struct {
	name string
	// kib is the size limit of the design, heap the largest cost in the API server in MB; zero for a
	// peer's set.
	kib, heap float64
	encode    func(gpu.Node) (wire.Pool, error)
}

func compact() set { return ours("compact", 160, 3.5, v1alpha1.Compact) }
func full() set    { return ours("full", 260, 5.3, v1alpha1.Full) }

// ours is our set with every shape.
func ours(name string, kib, heap float64, attributes v1alpha1.AttributeSet) set {
	return set{name, kib, heap, func(n gpu.Node) (wire.Pool, error) {
		options, err := options(attributes)
		if err != nil {
			return wire.Pool{}, err
		}
		return wire.Encode(n, options)
	}}
}

// options are those of an agent with the defaults: every shape.
func options(attributes v1alpha1.AttributeSet) (wire.Options, error) {
	config := v1alpha1.Default().NodeConfigSpec
	config.DriverName, config.Attributes = harness.Driver, attributes
	return publish.Options(config)
}

// objects returns the set of the node as the API server gets it.
func (s set) objects(name string) ([]resourceapi.ResourceSlice, error) {
	n, err := node(name)
	if err != nil {
		return nil, err
	}
	pool, err := s.encode(n)
	if err != nil {
		return nil, err
	}
	var objects []resourceapi.ResourceSlice
	for i, content := range pool.Slices {
		objects = append(objects, resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprintf("%s-%s-%d", name, harness.Driver, i),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: "5b1c1b5e-0000-4000-8000-000000000001", Controller: new(true)}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: harness.Driver, NodeName: &name,
				Pool:    resourceapi.ResourcePool{Name: pool.Name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				Devices: content.Devices, SharedCounters: content.SharedCounters,
			},
		})
	}
	return objects, nil
}

// size is the size of a set.
type size struct {
	// json and wire are KiB as JSON and as protobuf, the form that the API server stores.
	json, wire      float64
	slices, devices int
}

func (s set) size() (size, error) {
	objects, err := s.objects(nodeName)
	if err != nil {
		return size{}, err
	}
	total := size{slices: len(objects)}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return size{}, err
		}
		total.json += float64(len(text)) / 1024
		total.wire += float64(o.Size()) / 1024
		total.devices += len(o.Spec.Devices)
	}
	return total, nil
}

// sizes measures how large the sets are and how long they take to build.
func (b *bench) sizes(sets []set) error {
	sized := map[string]size{}
	for _, s := range sets {
		found, err := s.size()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		sized[s.name] = found
	}
	theirs := sized[nvidia]
	for _, s := range sets {
		if s.name == nvidia {
			continue
		}
		found := sized[s.name]
		b.Add(
			report.Figure(s.name+" set of 8 × H100, JSON", found.json, "KiB").AtMost(s.kib).Peer(nvidia, theirs.json),
			report.Figure(s.name+" set of 8 × H100, as stored", found.wire, "KiB").Peer(nvidia, theirs.wire),
		)
	}
	first := sized[sets[0].name]
	b.Add(
		report.Figure("ResourceSlices of a node", float64(first.slices), "objects").Peer(nvidia, float64(theirs.slices)),
		report.Figure("devices of a node", float64(first.devices), "devices").Peer(nvidia, float64(theirs.devices)),
	)
	for _, s := range sets[:1] {
		took, err := b.encodes(s)
		if err != nil {
			return err
		}
		b.Add(report.Figure(fmt.Sprintf("encode the %s set, median of %d", s.name, b.rounds), report.Milliseconds(took.Median()), "ms"))
	}
	return nil
}

func (b *bench) encodes(s set) (report.Samples, error) {
	n, err := node(nodeName)
	if err != nil {
		return nil, err
	}
	var samples report.Samples
	for range b.rounds {
		begin := time.Now()
		if _, err := s.encode(n); err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(begin))
	}
	return samples, nil
}
