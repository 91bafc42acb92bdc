package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/host"
)

// cluster is an API server with one Node and optionally its GPUNode. It validates like a real API server.
type cluster struct {
	node    corev1.Node
	gpuNode *v1alpha1.GPUNode
	// mutex guards the fields below.
	mutex   sync.Mutex
	down    bool
	watcher *watch.FakeWatcher
	// calls are the requests, including writes.
	calls []string
}

var resource = schema.GroupResource{Group: "tessera.dev", Resource: "gpunodes"}

func (c *cluster) call(name string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.calls = append(c.calls, name)
	if c.down {
		return errors.New("connection refused")
	}
	return nil
}

type nodes struct{ *cluster }

func (n nodes) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	if err := n.call("get node"); err != nil {
		return nil, err
	}
	if name != n.node.Name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	return n.node.DeepCopy(), nil
}

func (c *cluster) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1alpha1.GPUNode, error) {
	if err := c.call("get"); err != nil {
		return nil, err
	}
	if c.gpuNode == nil || c.gpuNode.Name != name {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return c.gpuNode.DeepCopy(), nil
}

// Watch sends the later events of the GPUNode.
func (c *cluster) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := c.call("watch"); err != nil {
		return nil, err
	}
	if o.FieldSelector != "metadata.name=n1" || o.ResourceVersion == "" || o.TimeoutSeconds == nil || !o.AllowWatchBookmarks {
		return nil, apierrors.NewBadRequest("not a watch of one GPUNode from where it was read")
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.watcher = watch.NewFakeWithChanSize(9, false)
	return c.watcher, nil
}

func (c *cluster) Create(_ context.Context, node *v1alpha1.GPUNode, _ metav1.CreateOptions) (*v1alpha1.GPUNode, error) {
	if err := c.call("create"); err != nil {
		return nil, err
	}
	if c.gpuNode != nil {
		return nil, apierrors.NewAlreadyExists(resource, node.Name)
	}
	c.gpuNode = node.DeepCopy()
	c.gpuNode.ResourceVersion = "1"
	c.gpuNode.Status = v1alpha1.GPUNodeStatus{} // as with every kind that has a subresource for it
	return c.gpuNode.DeepCopy(), nil
}

func (c *cluster) Patch(_ context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, sub ...string) (*v1alpha1.GPUNode, error) {
	if err := c.call("patch"); err != nil {
		return nil, err
	}
	if c.gpuNode == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if kind != types.ApplyPatchType || options.FieldManager != "tessera-discovery" || len(sub) != 1 || sub[0] != "status" {
		return nil, apierrors.NewBadRequest("not how status.hardware is written")
	}
	var patch struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Status           map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if patch.APIVersion != "tessera.dev/v1alpha1" || patch.Kind != "GPUNode" || patch.Metadata.Name != name || len(patch.Status) != 1 {
		return nil, apierrors.NewBadRequest("not an apply configuration of status.hardware alone: " + string(data))
	}
	c.gpuNode.Status.Hardware = &v1alpha1.HardwareStatus{}
	return c.gpuNode.DeepCopy(), json.Unmarshal(patch.Status["hardware"], c.gpuNode.Status.Hardware)
}

func (c *cluster) take() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// machine is an Ubuntu host with two GPUs and no driver.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, map[string]string{
		"etc/os-release":                 "ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n",
		"proc/sys/kernel/osrelease":      "6.8.0-79-generic\n",
		"proc/sys/kernel/random/boot_id": "b1\n",
	})
	for _, address := range []string{"0000:17:00.0", "0000:2a:00.0"} {
		folder := "sys/bus/pci/devices/" + address + "/"
		put(t, root, map[string]string{folder + "vendor": "0x10de\n", folder + "class": "0x030200\n", folder + "device": "0x2330\n"})
	}
	return root
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func at(root string) Host {
	return Host{
		Roots:            host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Dev: root, Driver: "/run/nvidia/driver"},
		ContainerdConfig: "/etc/containerd/config.toml", CDI: "/var/run/cdi",
	}
}

func newCluster() *cluster {
	c := &cluster{}
	c.node.Name, c.node.UID = "n1", "uid-of-n1"
	c.node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.2.1"
	return c
}

func TestDiscovery(t *testing.T) {
	root, c := machine(t), newCluster()
	put(t, root, map[string]string{"sys/class/dmi/id/product_name": "PowerEdge XE9680\n"})
	d := New("n1", at(root), nodes{c}, c)
	if err := d.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.HardwareStatus{
		BootID: "b1", GPUs: 2, PCI: []string{"2330"}, Mode: "compute", Machine: "PowerEdge XE9680", Kernel: "6.8.0-79-generic", OS: "ubuntu24.04", OSName: "Ubuntu 24.04 LTS",
		Architecture: runtime.GOARCH, Runtime: "containerd://2.2.1", CDI: true,
	}
	if diff := cmp.Diff(want, c.gpuNode.Status.Hardware); diff != "" {
		t.Errorf("hardware (-want +got):\n%s", diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-of-n1"}}
	if diff := cmp.Diff(owner, c.gpuNode.OwnerReferences); diff != "" {
		t.Errorf("owner (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"get", "get node", "create", "patch"}, c.take()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if err := d.Once(t.Context()); err != nil || len(c.take()) != 0 {
		t.Errorf("nothing has changed: requests were made, or error %v", err)
	}
	// The driver is loaded; then a GPU falls off the bus.
	put(t, root, map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"})
	if err := d.Once(t.Context()); err != nil || c.gpuNode.Status.Hardware.LoadedDriver != "580.95.05" {
		t.Errorf("loaded driver %q, error %v", c.gpuNode.Status.Hardware.LoadedDriver, err)
	}
	for _, address := range []string{"0000:17:00.0", "0000:2a:00.0"} {
		if err := os.RemoveAll(filepath.Join(root, "sys/bus/pci/devices", address)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Once(t.Context()); err != nil || c.gpuNode.Status.Hardware.GPUs != 0 {
		t.Errorf("%d GPUs, error %v: a node that had GPUs must report zero", c.gpuNode.Status.Hardware.GPUs, err)
	}
}

func TestDiscoveryAfterRestart(t *testing.T) {
	root, c := machine(t), newCluster()
	if err := New("n1", at(root), nodes{c}, c).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.take()
	if err := New("n1", at(root), nodes{c}, c).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"get", "get node"}, c.take()); diff != "" {
		t.Errorf("requests of a new pod (-want +got):\n%s", diff)
	}
}

func TestDiscoveryWithoutGPUs(t *testing.T) {
	root, c := machine(t), newCluster()
	if err := os.RemoveAll(filepath.Join(root, "sys")); err != nil {
		t.Fatal(err)
	}
	d := New("n1", at(root), nodes{c}, c)
	for range 2 {
		if err := d.Once(t.Context()); err != nil || c.gpuNode != nil {
			t.Errorf("GPUNode %v, error %v", c.gpuNode, err)
		}
	}
	if diff := cmp.Diff([]string{"get"}, c.take()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestDiscoveryRaced(t *testing.T) {
	root, c := machine(t), newCluster()
	raced := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	d := New("n1", at(root), nodes{c}, createdMeanwhile{c, raced})
	if err := d.Once(t.Context()); err != nil || c.gpuNode.Status.Hardware == nil {
		t.Errorf("the installer was faster: error %v", err)
	}
}

// createdMeanwhile has the installer create the GPUNode just before the discovery does.
type createdMeanwhile struct {
	*cluster
	node *v1alpha1.GPUNode
}

func (c createdMeanwhile) Create(ctx context.Context, node *v1alpha1.GPUNode, o metav1.CreateOptions) (*v1alpha1.GPUNode, error) {
	c.gpuNode = c.node
	return c.cluster.Create(ctx, node, o)
}

// pass advances the time of the synctest bubble and waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestRun checks the requests of one day, and those during an outage of the API server.
func TestRun(t *testing.T) {
	root := machine(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.down = true
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New("n1", at(root), nodes{c}, c).Run(ctx) }()
		pass(time.Hour)
		if n := len(c.take()); n < 5 || n > 25 {
			t.Errorf("%d requests in an hour without an API server", n)
		}
		c.mutex.Lock()
		c.down = false
		c.mutex.Unlock()
		pass(6 * time.Minute)
		if c.gpuNode == nil || c.gpuNode.Status.Hardware == nil {
			t.Fatal("no report six minutes after the outage")
		}
		c.take()
		pass(24 * time.Hour)
		calls := c.take()
		for _, call := range calls {
			if call != "get" && call != "get node" && call != "watch" {
				t.Errorf("a day without changes: %q", call)
			}
		}
		calls = slices.DeleteFunc(calls, func(call string) bool { return call == "watch" })
		if len(calls) > 8 {
			t.Errorf("%d requests in a day without changes", len(calls))
		}
		put(t, root, map[string]string{"proc/sys/kernel/random/boot_id": "b2\n"})
		pass(6 * time.Minute)
		if got := c.gpuNode.Status.Hardware.BootID; got != "b2" {
			t.Errorf("boot %q six minutes after a change", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// A GPUNode that is deleted, or restored without its status, is soon written again. Other changes cause no request.
func TestLostGPUNode(t *testing.T) {
	root := machine(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New("n1", at(root), nodes{c}, c).Run(ctx) }()
		synctest.Wait()
		for what, lose := range map[string]func(){
			"deleted": func() { was := c.gpuNode; c.gpuNode = nil; c.watcher.Delete(was) },
			"restored without its status": func() {
				c.gpuNode.Status = v1alpha1.GPUNodeStatus{}
				c.watcher.Modify(c.gpuNode.DeepCopy())
			},
			"changed without a watch": func() {
				c.gpuNode = nil
				c.watcher.Error(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
			},
		} {
			c.take()
			node := c.gpuNode.DeepCopy()
			node.Status.Phase = v1alpha1.PhaseReady
			c.watcher.Modify(node)
			c.watcher.Action(watch.Bookmark, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}})
			pass(20 * time.Second)
			if calls := c.take(); len(calls) != 0 {
				t.Errorf("another one wrote its part: requests %v", calls)
			}
			lose()
			pass(20 * time.Second)
			if c.gpuNode == nil || c.gpuNode.Status.Hardware == nil {
				t.Fatalf("a GPUNode that was %s is not written again", what)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestReadRuntime(t *testing.T) {
	enabled := "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n"
	tests := map[string]struct {
		runtime, config string
		want            bool
	}{
		"containerd 2":                  {"containerd://2.0.0", "", true},
		"containerd 2, odd version":     {"containerd://v2.2.1-k3s1", "", true},
		"containerd 2, switched off":    {"containerd://2.2.9", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n", false},
		"containerd 2, other folder":    {"containerd://2.2.9", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\ncdi_spec_dirs = ['/etc/cdi']\n", false},
		"containerd 2, off by format 2": {"containerd://2.2.9", strings.ReplaceAll(enabled, "true", "false"), false},
		"containerd 2, broken":          {"containerd://2.2.9", "[", false},
		"containerd 1.7":                {"containerd://1.7.27", "", false},
		"containerd 1.7, enabled":       {"containerd://1.7.27", enabled, true},
		"containerd 1.6 has no CDI":     {"containerd://1.6.36", enabled, false},
		"containerd 1.7, broken":        {"containerd://1.7.27", enabled + "[", false},
		"containerd 1.7, other folder":  {"containerd://1.7.27", enabled + "cdi_spec_dirs = ['/etc/cdi']\n", false},
		"CRI-O":                         {"cri-o://1.33.4", "", true},
		"old CRI-O":                     {"cri-o://1.22.0", "", false},
		"docker":                        {"docker://27.0.1", enabled, false},
		"unknown":                       {"", "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if test.config != "" {
				put(t, root, map[string]string{"etc/containerd/config.toml": test.config})
			}
			if got, nvidia := at(root).readRuntime(test.runtime); got != test.want || nvidia != "" {
				t.Errorf("got %t, %q", got, nvidia)
			}
		})
	}
}

// NVIDIA's runtime as the default is found in the configuration of each runtime.
func TestReadNVIDIARuntime(t *testing.T) {
	for runtime, files := range map[string]map[string]string{
		"containerd://1.7.27": {"etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = 'nvidia'\n"},
		"containerd://2.2.1":  {"etc/containerd/config.toml": "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = 'nvidia'\n"},
		"cri-o://1.33.4":      {"etc/crio/crio.conf.d/99-nvidia.conf": "[crio.runtime]\ndefault_runtime = 'nvidia'\n"},
	} {
		root := t.TempDir()
		put(t, root, files)
		if _, nvidia := at(root).readRuntime(runtime); nvidia != "nvidia" {
			t.Errorf("%s: got %q", runtime, nvidia)
		}
	}
}

// TestConnect checks the requests on the wire.
func TestConnect(t *testing.T) {
	type request struct{ Method, Path, Query, Type string }
	var got []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type")})
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1/nodes/n1":
			_, err = w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u"}}`))
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusNotFound)
			_, err = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
		default:
			_, err = w.Write(body)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	known, gpuNodes, err := Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := New("n1", at(machine(t)), known, gpuNodes).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/tessera.dev/v1alpha1/gpunodes"
	want := []request{
		{"GET", path + "/n1", "", ""}, {"GET", "/api/v1/nodes/n1", "", ""},
		{"POST", path, "fieldManager=tessera-discovery", "application/json"},
		{"PATCH", path + "/n1/status", "fieldManager=tessera-discovery&force=true", "application/apply-patch+yaml"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
