package catalog

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

const namespace = "tessera-system"

// world is a ClusterPolicy and an NVIDIADriver that reference a ConfigMap and a Secret, and a Source that counts what it renders.
type world struct {
	*testing.T
	client.WithWatch
	source   *Source
	rendered atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.ClusterPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName, UID: "policy", Generation: 1},
			Spec:       v1alpha1.ClusterPolicySpec{Driver: v1alpha1.DriverSpec{RepoConfig: "mirror"}},
		},
		&v1alpha1.NVIDIADriver{
			ObjectMeta: metav1.ObjectMeta{Name: "own", UID: "driver", Generation: 1},
			Spec:       v1alpha1.NVIDIADriverSpec{DriverSpec: v1alpha1.DriverSpec{SecretEnv: "proxy"}},
		},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror"}, Data: map[string]string{"a.list": "deb"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "unrelated"}},
	).Build()}
	w.source = NewSource(w, namespace, render.Images{Driver: "driver", DriverVersion: "580.1"})
	w.source.render = func(in render.Input, set render.DriverSet) (v1alpha1.DesiredDriver, error) {
		w.rendered.Add(1)
		return render.Driver(in, set)
	}
	return w
}

func (w *world) read() *Catalog {
	w.Helper()
	c, err := w.source.Read(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// change reads an object, changes it and writes it.
func change[T client.Object](w *world, key string, object T, edit func(T)) {
	w.Helper()
	name := types.NamespacedName{Name: key}
	if _, cluster := any(object).(*corev1.ConfigMap); cluster {
		name.Namespace = namespace
	}
	if err := w.Get(w.Context(), name, object); err != nil {
		w.Fatal(err)
	}
	edit(object)
	if err := w.Update(w.Context(), object); err != nil {
		w.Fatal(err)
	}
}

// However often and by how many reconciles a catalog is read, it is computed once, and each driver is rendered once.
func TestCatalogIsComputedOnce(t *testing.T) {
	w := newWorld(t)
	hardware := &v1alpha1.HardwareStatus{GPUs: 1, OS: "ubuntu24.04", Kernel: "6.8"}
	var mutex sync.Mutex
	computations := map[*computed]bool{}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				c, err := w.source.Read(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				a := c.Assign(&corev1.Node{}).WithHardware(hardware)
				if found, ok := c.DriverFor(a, hardware); !ok || found.Err != nil || found.Desired.Digest == "" {
					t.Errorf("driver: got %+v, %t", found, ok)
				}
				mutex.Lock()
				computations[c.computed] = true
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	if len(computations) != 1 || w.rendered.Load() != 1 {
		t.Errorf("computed %d catalogs and rendered %d drivers, want one of each", len(computations), w.rendered.Load())
	}
}

// A change of an input is in the next catalog; any other change computes nothing, and metadata and status are always present ones.
func TestCatalogFollowsItsInputs(t *testing.T) {
	tests := map[string]struct {
		change   func(*world)
		computes bool
		holds    func(*Catalog) bool
	}{
		"spec of the ClusterPolicy": {func(w *world) {
			change(w, v1alpha1.ClusterPolicyName, &v1alpha1.ClusterPolicy{}, func(p *v1alpha1.ClusterPolicy) { p.Spec.ReadinessTaint, p.Generation = true, 2 })
		}, true, func(c *Catalog) bool { return c.Policy.Spec.ReadinessTaint && c.Input().Policy.Spec.ReadinessTaint }},
		"another ClusterPolicy of the same generation": {func(w *world) {
			change(w, v1alpha1.ClusterPolicyName, &v1alpha1.ClusterPolicy{}, func(p *v1alpha1.ClusterPolicy) { p.Spec.ReadinessTaint, p.UID = true, "later" })
		}, true, func(c *Catalog) bool { return c.Policy.Spec.ReadinessTaint }},
		"spec of an NVIDIADriver": {func(w *world) {
			change(w, "own", &v1alpha1.NVIDIADriver{}, func(d *v1alpha1.NVIDIADriver) { d.Spec.Version, d.Generation = "590.1", 2 })
		}, true, func(c *Catalog) bool { return c.Drivers[0].Spec.Version == "590.1" }},
		"another NVIDIADriver": {func(w *world) {
			if err := w.Create(w.Context(), &v1alpha1.NVIDIADriver{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
				w.Fatal(err)
			}
		}, true, func(c *Catalog) bool { return len(c.Drivers) == 2 && c.Drivers[0].Name == "a" }},
		"content of a ConfigMap that is referenced": {func(w *world) {
			change(w, "mirror", &corev1.ConfigMap{}, func(m *corev1.ConfigMap) { m.Data["b.list"] = "rpm" })
		}, true, func(c *Catalog) bool { return len(c.Input().Keys["ConfigMap/mirror"]) == 2 }},
		"a Secret that is referenced is created": {func(w *world) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy"}, Data: map[string][]byte{"HTTP_PROXY": []byte("a")}}
			if err := w.Create(w.Context(), secret); err != nil {
				w.Fatal(err)
			}
		}, true, func(c *Catalog) bool { return c.Input().Contents["Secret/proxy"] != "" }},
		"a ConfigMap that is referenced is deleted": {func(w *world) {
			if err := w.Delete(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror"}}); err != nil {
				w.Fatal(err)
			}
		}, true, func(c *Catalog) bool { _, exists := c.Input().Contents["ConfigMap/mirror"]; return !exists }},
		"content of another ConfigMap": {func(w *world) {
			change(w, "unrelated", &corev1.ConfigMap{}, func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "b"} })
		}, false, func(*Catalog) bool { return true }},
		"an annotation of the ClusterPolicy": {func(w *world) {
			change(w, v1alpha1.ClusterPolicyName, &v1alpha1.ClusterPolicy{}, func(p *v1alpha1.ClusterPolicy) {
				p.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
			})
		}, false, func(c *Catalog) bool { return c.Policy.Annotations[v1alpha1.AnnotationPause] == "true" }},
		"the status of an NVIDIADriver": {func(w *world) {
			change(w, "own", &v1alpha1.NVIDIADriver{}, func(d *v1alpha1.NVIDIADriver) { d.Status.ObservedGeneration = 7 })
		}, false, func(c *Catalog) bool { return c.Drivers[0].Status.ObservedGeneration == 7 }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.read()
			test.change(w)
			after := w.read()
			if got := before.computed != after.computed; got != test.computes {
				t.Errorf("computed again: %t, want %t", got, test.computes)
			}
			if !test.holds(after) {
				t.Errorf("the change is not in the catalog: %+v, %+v", after.Policy, after.Drivers)
			}
			if again := w.read(); again.computed != after.computed {
				t.Error("without a change it is computed again")
			}
		})
	}
}

// An error leaves the Source as it was: the next Read works. Without a ClusterPolicy there is no catalog.
func TestCatalogCannotBeRead(t *testing.T) {
	refused := errors.New("refused")
	for name, fails := range map[string]func(client.Object) bool{
		"the ClusterPolicy": func(o client.Object) bool { _, is := o.(*v1alpha1.ClusterPolicy); return is },
		"a ConfigMap":       func(o client.Object) bool { _, is := o.(*corev1.ConfigMap); return is },
		"a Secret":          func(o client.Object) bool { _, is := o.(*corev1.Secret); return is },
		"the NVIDIADrivers": nil,
	} {
		t.Run(name, func(t *testing.T) {
			w, failing := newWorld(t), true
			w.source.reader = interceptor.NewClient(w, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if failing && fails != nil && fails(o) {
						return refused
					}
					return c.Get(ctx, key, o, options...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if failing && fails == nil {
						return refused
					}
					return c.List(ctx, list, options...)
				},
			})
			if _, err := w.source.Read(t.Context()); !errors.Is(err, refused) {
				t.Errorf("got error %v", err)
			}
			failing = false
			if c := w.read(); c.Input().Contents["ConfigMap/mirror"] == "" || !c.References("Secret", "proxy") || c.References("Secret", "mirror") {
				t.Errorf("after the error: %+v, %q", c.Input().Contents, c.references)
			}
		})
	}
	w := newWorld(t)
	if err := w.Delete(t.Context(), &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterPolicyName}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.source.Read(t.Context()); !errors.Is(err, ErrNoPolicy) {
		t.Errorf("without a ClusterPolicy: got error %v", err)
	}
}

// A ClusterPolicy that is being deleted, as in the foreground, where it exists until its objects are deleted, counts as absent.
func TestAPolicyThatIsBeingDeletedIsAbsent(t *testing.T) {
	w := newWorld(t)
	policy := &v1alpha1.ClusterPolicy{}
	if err := w.Get(t.Context(), types.NamespacedName{Name: v1alpha1.ClusterPolicyName}, policy); err != nil {
		t.Fatal(err)
	}
	policy.Finalizers = []string{metav1.FinalizerDeleteDependents}
	if err := errors.Join(w.Update(t.Context(), policy), w.Delete(t.Context(), policy)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.source.Read(t.Context()); !errors.Is(err, ErrNoPolicy) {
		t.Errorf("got error %v, want ErrNoPolicy", err)
	}
}
