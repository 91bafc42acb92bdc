package lifecycle

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/controller"
	shipped "github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/installer/render"
)

// installs is the installer that runs at the moment.
type installs struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

// request is a request of the installer to the API server.
type request struct{ method, path string }

// watch is the method of requests that are answered for as long as their connection lasts.
const watch = "WATCH"

// writes reports whether it changes anything that people would notice; leases and events are not among it.
func (r request) writes() bool {
	return r.method != http.MethodGet && r.method != watch && !strings.Contains(r.path, "/leases") && !strings.Contains(r.path, "/events")
}

// requests are all that were made.
type requests struct {
	mutex sync.Mutex
	list  []request
	// open is how many of them are not answered.
	open int
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wrap counts requests. A watch counts once: client-go restarts it whenever its connection ends.
func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		made := request{q.Method, q.URL.Path}
		if q.URL.Query().Get("watch") == "true" {
			made.method = watch
		}
		if !r.begin(made) {
			return next.RoundTrip(q)
		}
		defer r.end()
		return next.RoundTrip(q)
	})
}

// begin counts a request, unless it is a watch that was begun before.
func (r *requests) begin(made request) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if made.method == watch && slices.Contains(r.list, made) {
		return false
	}
	r.list, r.open = append(r.list, made), r.open+1
	return true
}

// end counts an answer.
func (r *requests) end() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.open--
}

// since returns the requests after the first n.
func (r *requests) since(n int) []request {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.list[n:])
}

// count is how many were made so far.
func (r *requests) count() int {
	made, _ := r.state()
	return made
}

// state is how many were made so far, and how many of them are not answered.
func (r *requests) state() (made, open int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.list), r.open
}

// writes are those that change something.
func writes(list []request) []request {
	return slices.DeleteFunc(list, func(r request) bool { return !r.writes() })
}

// images are those of a release.
var images = render.Images{
	Node: "registry.test/node:v1", Scheduler: "registry.test/scheduler:v1", Driver: "registry.test/driver", DCGM: "registry.test/dcgm:v1",
	DCGMExporter: "registry.test/exporter:v1", DriverVersion: "580.1",
}

// start runs an installer with its own identity.
func (w *world) start(changes ...func(*controller.Config)) {
	w.Helper()
	access, err := w.token(w.Context())
	w.must(err)
	access.Wrap(w.requests.wrap)
	config := controller.Config{
		Access: access, Namespace: home, Images: images, Schemas: schemas(w), MetricsAddress: "0", Registry: prometheus.NewRegistry(),
	}
	for _, change := range changes {
		change(&config)
	}
	w.run(config)
}

// run runs an installer until it is stopped.
func (w *world) run(config controller.Config) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	w.installs = installs{cancel: cancel, ended: ended}
	go func() {
		defer close(ended)
		w.err = controller.Run(ctx, config)
	}()
}

// stop ends the installer, if one runs.
func (w *world) stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended
		w.cancel = nil
	}
}

// failed is why the installer ended by itself.
func (w *world) failed() error {
	select {
	case <-w.ended:
		return w.err
	default:
		return nil
	}
}

func schemas(w *world) map[string]string {
	w.Helper()
	list, err := shipped.Load()
	w.must(err)
	hashes := map[string]string{}
	for _, crd := range list {
		hashes[crd.Name] = crd.Annotations[shipped.HashAnnotation]
	}
	return hashes
}

// removeOperands removes what the installer made for the cluster.
func (w *world) removeOperands(ctx context.Context) {
	managed := client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}
	for _, object := range []client.Object{&appsv1.DaemonSet{}, &appsv1.Deployment{}, &nodev1.RuntimeClass{}} {
		options := []client.DeleteAllOfOption{managed}
		if _, cluster := object.(*nodev1.RuntimeClass); !cluster {
			options = append(options, client.InNamespace(home))
		}
		if err := w.admin.DeleteAllOf(ctx, object, options...); err != nil {
			w.Error(err)
		}
	}
	services := &corev1.ServiceList{}
	if err := w.admin.List(ctx, services, managed, client.InNamespace(home)); err != nil {
		w.Error(err)
	}
	for i := range services.Items {
		if err := w.admin.Delete(ctx, &services.Items[i]); err != nil {
			w.Error(err)
		}
	}
}
