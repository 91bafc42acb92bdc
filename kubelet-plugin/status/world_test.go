package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	driver = "gpu.tessera.dev"
	other  = "nic.example.com"
	pool   = "node1-gpu.tessera.dev"
)

// world is an API server and a reporter.
type world struct {
	t        *testing.T
	client   *fake.Clientset
	registry *prometheus.Registry
	reporter *Reporter
	ward     *ward
}

func newWorld(t *testing.T, claims ...*resourceapi.ResourceClaim) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), ward: &ward{known: true, outdated: make(chan struct{})}}
	for _, c := range claims {
		if err := w.client.Tracker().Add(c); err != nil {
			t.Fatal(err)
		}
	}
	// The recorder names Events by the time, which does not advance here.
	names := 0
	w.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateAction); ok {
			if event, ok := create.GetObject().(*corev1.Event); ok {
				names++
				event.Name = fmt.Sprintf("event-%d", names)
			}
		}
		return false, nil, nil
	})
	w.start()
	return w
}

// start replaces the reporter by a new one, as after a restart of the agent.
func (w *world) start() {
	w.registry = prometheus.NewRegistry()
	w.reporter = New(Config{Driver: driver, Node: "node1", Pool: pool, Client: w.client, Registry: w.registry, Health: w.ward, Records: w.ward, BootID: "boot"})
}

// run runs the reporter while do tells it, and until it has nothing to do at this time.
func (w *world) run(do func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	end := make(chan error, 1)
	go func() { end <- w.reporter.Run(ctx) }()
	do()
	time.Sleep(writeDelay)
	synctest.Wait()
	cancel()
	if err := <-end; err != nil {
		w.t.Error(err)
	}
	synctest.Wait()
}

// fail lets the next n writes of a status fail.
func (w *world) fail(n int, err error) {
	w.client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n == 0 {
			return false, nil, nil
		}
		n--
		return true, nil, err
	})
}

// count returns how often the API server was asked for it.
func (w *world) count(verb, resource string) int {
	n := 0
	for _, a := range w.client.Actions() {
		if a.Matches(verb, resource) {
			n++
		}
	}
	return n
}

func (w *world) claim(name string) *resourceapi.ResourceClaim {
	w.t.Helper()
	c, err := w.client.ResourceV1().ResourceClaims("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// lines returns one line per entry and condition.
func (w *world) lines(name string) []string {
	var lines []string
	for _, e := range w.claim(name).Status.Devices {
		line := e.Driver + " " + e.Device
		if e.ShareID != nil {
			line += " " + *e.ShareID
		}
		if len(e.Conditions) == 0 {
			lines = append(lines, line)
		}
		for _, c := range e.Conditions {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s=%s %s %s", line, c.Type, c.Status, c.Reason, c.Message)))
		}
	}
	slices.Sort(lines)
	return lines
}

// events returns a line per Event.
func (w *world) events() []string {
	w.t.Helper()
	return w.eventsIn("ns")
}

func (w *world) eventsIn(namespace string) []string {
	w.t.Helper()
	list, err := w.client.CoreV1().Events(namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, e := range list.Items {
		lines = append(lines, fmt.Sprintf("%dx %s %s %s: %s", e.Count, e.Type, e.Reason, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, e.Message))
	}
	slices.Sort(lines)
	return lines
}

// foreign makes another driver write an entry.
func (w *world) foreign(name, device string) {
	w.t.Helper()
	entry := resourceac.AllocatedDeviceStatus().WithDriver(other).WithPool("p").WithDevice(device)
	config := resourceac.ResourceClaim(name, "ns").WithStatus(resourceac.ResourceClaimStatus().WithDevices(entry))
	if _, err := w.client.ResourceV1().ResourceClaims("ns").ApplyStatus(w.t.Context(), config, metav1.ApplyOptions{FieldManager: other}); err != nil {
		w.t.Fatal(err)
	}
}

// allocated is a claim for two pods that holds the devices, each "device" or "device/share id", and one of
// another driver.
func allocated(name string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
	}
	results := []resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: other, Pool: "p", Device: "nic"}}
	for _, d := range devices {
		device, share, shared := strings.Cut(d, "/")
		result := resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: pool, Device: device}
		if shared {
			result.ShareID = new(types.UID(share))
		}
		results = append(results, result)
	}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	for _, pod := range []string{"a", "b"} {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)})
	}
	return c
}

func ref(name string) prepare.Ref {
	return prepare.Ref{UID: "uid-" + name, Namespace: "ns", Name: name}
}

// answer is a whole GPU as it was prepared under the name of the device.
func answer(device string, changes ...func(*prepare.Answer)) prepare.Answer {
	name, share, _ := strings.Cut(device, "/")
	a := prepare.Answer{CDIDevices: []string{"gpu.tessera.dev/claim=" + name, "gpu.tessera.dev/common=all"}}
	a.Result = prepare.Result{Request: "r", Pool: pool, Device: name, ShareID: share}
	a.Use = gpu.Device{GPU: "gpu-0000-3b-00-0", Use: gpu.Use{Shape: gpu.Whole}}
	a.GPU = gpu.GPU{PCI: "0000:3b:00.0", UUID: "GPU-1", Product: "NVIDIA H100 80GB HBM3"}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func timeSlice(requested, interval string) func(*prepare.Answer) {
	return func(a *prepare.Answer) { a.Settings.TimeSlice, a.Interval = requested, interval }
}
