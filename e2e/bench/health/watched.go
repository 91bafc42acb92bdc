package main

import (
	"context"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// driverKey begins the keys of our taints.
const driverKey = harness.Driver + "/"

// watched is the state of a host's devices on the API server, read with a watch.
type watched struct {
	mutex    sync.Mutex
	slices   map[string]resourceapi.ResourceSlice
	expected expected
	end      context.CancelFunc
}

// expected is a taint that is waited for on every device of a GPU. The channel is closed when all have
// it.
type expected struct {
	gpu    string
	signal gpu.Signal
	value  string
	done   chan struct{}
}

// follow starts the watch.
func follow(ctx context.Context, client kubernetes.Interface, h *harness.Host) *watched {
	ctx, cancel := context.WithCancel(ctx)
	w := &watched{slices: map[string]resourceapi.ResourceSlice{}, end: cancel}
	options := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = h.Selector().FieldSelector })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, options)
	// It is not started yet, so that adding a handler cannot fail.
	_, _ = factory.Resource().V1().ResourceSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.take(o, false) },
		UpdateFunc: func(_, o any) { w.take(o, false) },
		DeleteFunc: func(o any) { w.take(o, true) },
	})
	factory.StartWithContext(ctx)
	return w
}

func (w *watched) take(object any, deleted bool) {
	if last, is := object.(cache.DeletedFinalStateUnknown); is {
		object = last.Obj
	}
	slice, is := object.(*resourceapi.ResourceSlice)
	if !is {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.slices[slice.Name] = *slice
	if deleted {
		delete(w.slices, slice.Name)
	}
	w.fulfil()
}

// await starts to wait for a taint.
func (w *watched) await(gpuName string, signal gpu.Signal, value string) <-chan struct{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.expected = expected{gpuName, signal, value, make(chan struct{})}
	return w.expected.done
}

// fulfil closes the channel when every device of the GPU but its monitor has the taint.
func (w *watched) fulfil() {
	if w.expected.done == nil {
		return
	}
	count, of := 0, 0
	w.each(func(gpuName string, d wire.PublishedDevice) {
		if gpuName != w.expected.gpu || d.Use.Shape == gpu.Monitor {
			return
		}
		of++
		for _, taint := range d.Taints {
			if taint.Key == wire.TaintKey(harness.Driver, w.expected.signal) && taint.Value == w.expected.value {
				count++
			}
		}
	})
	if of > 0 && count == of {
		close(w.expected.done)
		w.expected = expected{}
	}
}

func (w *watched) each(f func(gpuName string, d wire.PublishedDevice)) {
	list := make([]resourceapi.ResourceSlice, 0, len(w.slices))
	for _, s := range w.slices {
		list = append(list, s)
	}
	for _, reading := range wire.Read(list) {
		for _, g := range reading.GPUs {
			for _, d := range g.Devices {
				f(g.Name, d)
			}
		}
	}
}

// marked counts the devices with a taint; prefix begins its key.
func (w *watched) marked(prefix string) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	count := 0
	w.each(func(_ string, d wire.PublishedDevice) {
		for _, taint := range d.Taints {
			if len(taint.Key) > len(prefix) && taint.Key[:len(prefix)] == prefix {
				count++
				return
			}
		}
	})
	return count
}

func (w *watched) devices() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	count := 0
	w.each(func(string, wire.PublishedDevice) { count++ })
	return count
}

// device is the name under which a device is published.
func (*watched) device(d gpu.Device) string { return wire.DeviceName(d) }
