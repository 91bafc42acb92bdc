package controllertest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	runtimetest "sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Timeout is how long Eventually waits.
const Timeout = 30 * time.Second

// Watches are the watches of a manager. Tests report changes of objects through them; nothing is read from an API server.
type Watches struct {
	*testing.T
	informertest.FakeInformers
	mutex sync.Mutex
	kinds map[schema.GroupVersionKind]*informer
}

// informer keeps the handlers of one kind. Sources add theirs concurrently.
type informer struct {
	*runtimetest.FakeInformer
	mutex    sync.Mutex
	handlers []toolscache.ResourceEventHandler
}

// AddEventHandlerWithOptions adds a handler.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.handlers = append(i.handlers, h)
	return i.FakeInformer.AddEventHandlerWithOptions(h, o)
}

// GetInformer returns the informer of a kind.
func (w *Watches) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	kind, err := apiutil.GVKForObject(object, w.Scheme)
	if err != nil {
		return nil, err
	}
	return w.informer(kind), nil
}

func (w *Watches) informer(kind schema.GroupVersionKind) *informer {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.kinds[kind] == nil {
		w.kinds[kind] = &informer{FakeInformer: runtimetest.NewFakeInformer(runtimetest.Synced)}
	}
	return w.kinds[kind]
}

// StartManager starts a manager with a reconciler that setUp adds. It runs until the test ends.
func StartManager(t *testing.T, c client.Client, setUp func(ctrl.Manager) error) *Watches {
	t.Helper()
	w := &Watches{T: t, FakeInformers: informertest.FakeInformers{Scheme: c.Scheme()}, kinds: map[schema.GroupVersionKind]*informer{}}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{
		Scheme: c.Scheme(), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return c.RESTMapper(), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return w, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return c, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setUp(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// Watched reports whether the manager watches the kind of an object.
func (w *Watches) Watched(object client.Object) bool { return len(w.handlers(object)) > 0 }

// Create reports a creation. Without a watch of the kind nothing is reported.
func (w *Watches) Create(object client.Object) {
	for _, h := range w.handlers(object) {
		h.OnAdd(object, false)
	}
}

// Update reports a change. It gives now another version than old: controllers serve updates with the same version last.
func (w *Watches) Update(old, now client.Object) {
	now.SetResourceVersion(old.GetResourceVersion() + "1")
	for _, h := range w.handlers(now) {
		h.OnUpdate(old, now)
	}
}

// Delete reports a deletion.
func (w *Watches) Delete(object client.Object) {
	for _, h := range w.handlers(object) {
		h.OnDelete(object)
	}
}

func (w *Watches) handlers(object client.Object) []toolscache.ResourceEventHandler {
	w.Helper()
	kind, err := apiutil.GVKForObject(object, w.Scheme)
	if err != nil {
		w.Fatal(err)
	}
	i := w.informer(kind)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return append([]toolscache.ResourceEventHandler(nil), i.handlers...)
}

// Eventually waits until a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, Timeout, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}
