package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/kubelet-plugin/gpunode"
)

// installer simulates the installer for the GPUNode of one node.
type installer struct {
	*node
	client gpunode.Client
}

// newInstaller lets the node's agents watch its GPUNode, which does not exist yet.
func newInstaller(n *node) installer {
	n.t.Helper()
	n.args = []string{"--gpunode"}
	access, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	n.must(err)
	n.must(installKinds(n.t.Context(), access))
	client, err := gpunode.NewClient(access)
	n.must(err)
	return installer{node: n, client: client}
}

// installKinds creates the CRDs and waits until they are served.
func installKinds(ctx context.Context, access *rest.Config) error {
	client, err := apiextensions.NewForConfig(access)
	if err != nil {
		return err
	}
	list, err := crds.Load()
	if err != nil {
		return err
	}
	for _, crd := range list {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	nodes, err := gpunode.NewClient(access)
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) error {
		_, err := nodes.List(ctx, metav1.ListOptions{})
		return err
	})
}

// create creates the GPUNode.
func (i installer) create() {
	i.t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"tessera.dev/v1alpha1","kind":"GPUNode","metadata":{"name":%q}}`, i.name)
	_, err := i.client.Patch(i.t.Context(), i.name, types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "tessera-installer"})
	i.must(err)
}

// maintain takes the GPUs out of service. An empty ID returns them to service.
func (i installer) maintain(id string) {
	i.t.Helper()
	var maintenance any
	if id != "" {
		maintenance = v1alpha1.Maintenance{ID: id, Operation: v1alpha1.OperationDriverSwap, Reason: "580.82.07 is installed", Since: metav1.Now()}
	}
	i.patch(map[string]any{"spec": map[string]any{"maintenance": maintenance}})
}

// step sets the upgrade step of the maintenance.
func (i installer) step(step v1alpha1.UpgradeStep) {
	i.t.Helper()
	i.patch(map[string]any{"status": map[string]any{"step": step}}, "status")
}

func (i installer) patch(change map[string]any, subresources ...string) {
	i.t.Helper()
	text, err := json.Marshal(change)
	i.must(err)
	_, err = i.client.Patch(i.t.Context(), i.name, types.MergePatchType, text, metav1.PatchOptions{}, subresources...)
	i.must(err)
}

// agent returns the agent's part of the GPUNode's status.
func (i installer) agent(ctx context.Context) (v1alpha1.AgentStatus, error) {
	list, err := i.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + i.name})
	switch {
	case err != nil:
		return v1alpha1.AgentStatus{}, err
	case len(list.Items) == 0 || list.Items[0].Status.Agent == nil:
		return v1alpha1.AgentStatus{}, errors.New("the agent has said nothing")
	}
	return *list.Items[0].Status.Agent, nil
}

// acked waits until the agent of the pod acknowledges the maintenance with the given number of prepared claims; for an
// empty ID, until it reports no maintenance.
func (i installer) acked(what, pod, id string, prepared int) {
	i.t.Helper()
	want := fmt.Sprintf("pod %s, maintenance %q, prepared %d", pod, id, prepared)
	i.eventually(what, func(ctx context.Context) error {
		s, err := i.agent(ctx)
		if err != nil {
			return err
		}
		count := 0
		if s.PreparedClaims != nil {
			count = int(*s.PreparedClaims)
		}
		if got := fmt.Sprintf("pod %s, maintenance %q, prepared %d", s.PodUID, s.Maintenance, count); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
}

// refused checks that a call failed because of the maintenance.
func (i installer) refused(what string, err error) {
	i.t.Helper()
	const want = "the GPUs of this node are out of service for a DriverSwap: 580.82.07 is installed"
	if err == nil || !strings.Contains(err.Error(), want) {
		i.t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// allow grants the agents' account permission to watch GPUNodes and to write their status, as the chart does.
func allow(n *node) {
	n.t.Helper()
	const name = "tessera-node:gpunode"
	group := []string{v1alpha1.GroupVersion.Group}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"gpunodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: group, Resources: []string{"gpunodes/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: agentNamespace, Name: agentAccount}},
	}
	_, failedRole := shared.client.RbacV1().ClusterRoles().Create(n.t.Context(), role, metav1.CreateOptions{})
	_, failedBinding := shared.client.RbacV1().ClusterRoleBindings().Create(n.t.Context(), binding, metav1.CreateOptions{})
	for _, err := range []error{failedRole, failedBinding} {
		if !apierrors.IsAlreadyExists(err) {
			n.must(err)
		}
	}
}

func TestGPUNode(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	allow(n)
	i := newInstaller(n)
	a, k := n.run()
	a.waitReady()
	without := n.claim("without", []gpu.Device{n.whole(0)})
	k.mustPrepare(without) // the GPUNode does not exist
	k.mustUnprepare(without)

	i.create()
	i.acked("the agent tells of itself", "pod", "", 0)
	var told v1alpha1.AgentStatus
	i.eventually("the slices are accepted", func(ctx context.Context) (err error) {
		if told, err = i.agent(ctx); err == nil && !told.Ready {
			err = errors.New("not accepted")
		}
		return err
	})
	g := n.hardware.GPUs[0]
	want := v1alpha1.AgentStatus{
		Version: told.Version, PodUID: "pod", BootID: told.BootID, Ready: true, DriverVersion: "580.65.06", CUDAVersion: told.CUDAVersion, GPUs: 2,
		Product: g.Product, Memory: int64(g.MemoryBytes), Architecture: g.Architecture, ComputeCapability: "9.0", Clique: g.Clique,
		MIGCapable: true, MIGMode: "Disabled",
	}
	if diff := cmp.Diff(want, told); diff != "" || told.Version == "" || told.BootID == "" || told.CUDAVersion == "" {
		t.Errorf("%+v (-want +got):\n%s", told, diff)
	}
	if size := a.memory(); size > 60<<10 && !raced {
		t.Errorf("the agent holds %d KiB, at most 60 MiB", size)
	}
	n.must(fakegpu.RemoveDriver(n.machine()))
	i.eventually("the driver is gone", func(ctx context.Context) error {
		if s, err := i.agent(ctx); err != nil || s.DriverVersion != "" || s.GPUs != 0 {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
}

func TestMaintenance(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.identify()
	allow(n)
	i := newInstaller(n)
	i.create()
	_, k := n.run()
	running := n.claim("running", []gpu.Device{n.whole(0)})
	k.mustPrepare(running)
	i.maintain("m1")
	i.acked("acknowledged", "pod", "m1", 1)
	k.mustPrepare(running) // another pod of it
	fresh := n.claim("fresh", []gpu.Device{n.slice(1, 19, 0)}, onNode(n))
	_, err := k.prepare(fresh)
	i.refused("a new claim", err)
	if message := n.warns(fresh, "OutOfService"); !strings.Contains(message, n.name) {
		t.Errorf("%q does not name the node", message)
	}
	k.mustUnprepare(running)
	i.acked("all is taken back", "pod", "m1", 0)
	_, err = k.prepare(running)
	i.refused("the claim that was taken back", err)

	n.start(shared.agent, "next") // overlaps, and becomes the leading agent
	i.acked("the next agent", "next", "m1", 0)
	_, err = k.prepare(fresh)
	i.refused("the older agent", err)
	validation := n.claim("v", []gpu.Device{n.slice(1, 19, 0)}, func(c *resourceapi.ResourceClaim) { c.Name = "tessera-validation-" + n.name })
	_, err = k.prepare(validation)
	i.refused("the validation before its step", err)
	i.step(v1alpha1.StepValidate)
	k.eventuallyPrepares("the validation", validation)
	i.acked("while it is validated", "next", "m1", 1)
	_, err = k.prepare(fresh)
	i.refused("a user's claim while it is validated", err)
	k.mustUnprepare(validation)

	i.maintain("")
	i.acked("at the end", "next", "", 0)
	k.mustPrepare(fresh)
	k.mustUnprepare(fresh)
	n.isClean()
}

// TestMaintenanceWaitsForTheOlderAgent checks that a claim which an older agent is preparing delays the newer agent's
// acknowledgement.
func TestMaintenanceWaitsForTheOlderAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	i := newInstaller(n)
	i.create()
	older := n.start(shared.agent, "older")
	k := older.connect()
	i.acked("the older agent leads", "older", "", 0)
	newer := n.start(shared.agent, "newer")
	newer.connect()
	i.acked("the newer agent leads", "newer", "", 0)

	n.must(fakegpu.Latency(n.machine(), 4*time.Second, 0))
	slow := n.claim("slow", []gpu.Device{n.slice(0, 19, 0)})
	done := make(chan error, 1)
	go func() { _, err := k.prepare(slow); done <- err }()
	n.eventuallyFile("the older agent is at work", n.recordOf(slow.GetUid()))
	i.maintain("m1")
	fresh := n.claim("fresh", []gpu.Device{n.whole(1)})
	n.eventually("the older agent refuses", func(ctx context.Context) error {
		_, err := k.client.Prepare(ctx, fresh)
		switch {
		case err == nil:
			return errors.Join(errors.New("prepared"), k.client.Unprepare(ctx, fresh))
		case !strings.Contains(err.Error(), "out of service"):
			return err
		}
		return nil
	})
	n.eventually("acknowledged", func(ctx context.Context) error {
		s, err := i.agent(ctx)
		if err != nil || s.Maintenance == "" {
			return errors.New("not yet")
		}
		if text := n.record(slow.GetUid()); !strings.Contains(text, `"state":"Prepared"`) {
			t.Errorf("acknowledged while the older agent is at work: %s", text)
		}
		return nil
	})
	n.must(<-done)
	i.acked("one is prepared", "newer", "m1", 1)

	newer.kill()
	i.acked("the older agent leads again", "older", "m1", 1)
	_, err := k.prepare(fresh)
	i.refused("the older agent", err)
	k.mustUnprepare(slow)
	i.acked("none is prepared", "older", "m1", 0)
}

// TestMaintenanceOutlivesTheAPI checks that an agent that starts without access to the GPUNode uses the last known
// state.
func TestMaintenanceOutlivesTheAPI(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	i := newInstaller(n)
	i.create()
	cut := n.proxied()
	a, k := n.run()
	claim := n.claim("claim", []gpu.Device{n.whole(0)})
	k.mustPrepare(claim)
	k.mustUnprepare(claim)
	i.maintain("m1")
	i.acked("acknowledged", "pod", "m1", 0)
	a.kill()
	cut.Store(true)
	_, k = n.run()
	_, err := k.prepare(claim)
	i.refused("after a restart without the GPUNode", err)
	i.maintain("")
	_, err = k.prepare(claim)
	i.refused("what it cannot know", err)
	cut.Store(false)
	k.eventuallyPrepares("the GPUNode can be read again", claim)
	k.mustUnprepare(claim)
	n.isClean()
}

// proxied adds a proxy between agents and the API server that hides the installer's kinds while the value is true.
func (n *node) proxied() *atomic.Bool {
	n.t.Helper()
	return n.between(func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/tessera.dev/") })
}

// between adds a proxy between agents and the API server that fails the chosen requests while the value is true.
func (n *node) between(chosen func(*http.Request) bool) *atomic.Bool {
	n.t.Helper()
	access, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig)
	n.must(err)
	transport, err := rest.TransportFor(access)
	n.must(err)
	target, err := url.Parse(access.Host)
	n.must(err)
	var hidden atomic.Bool
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hidden.Load() && chosen(r) {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	n.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	config, err := clientcmd.LoadFromFile(shared.kubeconfig)
	n.must(err)
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = server.URL, "", nil
	}
	n.kubeconfig = filepath.Join(n.dir, "proxied")
	n.must(clientcmd.WriteToFile(*config, n.kubeconfig))
	return &hidden
}
