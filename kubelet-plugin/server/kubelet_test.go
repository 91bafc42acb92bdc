package server

import (
	"context"
	"encoding/json"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// lister is kubelet's side of the pod resources API.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	resources := []*podresources.DynamicResource{{ClaimNamespace: "ns", ClaimName: "listed"}, {ClaimNamespace: "ns", ClaimName: "running"}}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Containers: []*podresources.ContainerResources{{}, {DynamicResources: resources}}},
	}}, nil
}

// newKubelet returns a kubelet with the claims listed and stored. The state file is as kubelet 1.37 writes it.
func newKubelet(t *testing.T) Kubelet {
	t.Helper()
	dir := folder(t)
	k := Kubelet{Socket: filepath.Join(dir, "kubelet.sock"), State: filepath.Join(dir, "dra_manager_state")}
	storeClaims(t, k, `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[`+
		`{"ClaimUID":"uid-stored","ClaimName":"stored","Namespace":"ns","PodUIDs":{"p":{}},"DriverState":{"gpu.tessera.dev":{"Devices":[]}}},`+
		`{"ClaimUID":"uid-running","ClaimName":"running","Namespace":"ns","PodUIDs":{"q":{}}},`+
		`{"ClaimUID":"uid-older","ClaimName":"stored","Namespace":"other","PodUIDs":{"r":{}}}]}`)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", k.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, lister{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return k
}

func storeClaims(t *testing.T, k Kubelet, data string) {
	t.Helper()
	text, err := json.Marshal(stateFile{Data: data, Checksum: crc32.ChecksumIEEE([]byte(data))})
	if err == nil {
		err = os.WriteFile(k.State, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func named(name string) prepare.Ref {
	return prepare.Ref{UID: "uid-" + name, Namespace: "ns", Name: name}
}

func TestKubeletHasClaims(t *testing.T) {
	k := newKubelet(t)
	for name, want := range map[string]bool{"listed": true, "stored": true, "other": false} {
		if known, err := k.Has(t.Context(), named(name)); err != nil || known != want {
			t.Errorf("%s: %t, %v, want %t", name, known, err, want)
		}
	}
}

// A claim runs that is in both sources: kubelet unprepares it before the claim can be released.
func TestKubeletRunsClaims(t *testing.T) {
	running, err := newKubelet(t).Running(t.Context())
	if diff := cmp.Diff(map[prepare.Ref]bool{named("running"): true}, running); err != nil || diff != "" {
		t.Errorf("running claims: %v (-want +got):\n%s", err, diff)
	}
}

// What kubelet has cannot be determined: each source is needed for that.
func TestKubeletThatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, k *Kubelet)
		want   string
	}{
		"does not run": {func(_ *testing.T, k *Kubelet) { k.Socket += ".missing" }, "list the containers of kubelet"},
		"has no state": {func(_ *testing.T, k *Kubelet) { k.State += ".missing" }, "no such file"},
		"has a newer format": {func(t *testing.T, k *Kubelet) {
			storeClaims(t, *k, `{"apiVersion":"checkpoint.dra.kubelet.k8s.io/v2"}`)
		}, "/v2"},
		"has no JSON": {func(t *testing.T, k *Kubelet) {
			if err := os.WriteFile(k.State, []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "unexpected end"},
		"has no claims as JSON": {func(t *testing.T, k *Kubelet) { storeClaims(t, *k, "{") }, "unexpected end"},
		"has a wrong checksum": {func(t *testing.T, k *Kubelet) {
			if err := os.WriteFile(k.State, []byte(`{"Data":"{}","Checksum":1}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "checksum"},
	} {
		k := newKubelet(t)
		test.change(t, &k)
		if known, err := k.Has(t.Context(), named("other")); known || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("kubelet %s: %t, %v", name, known, err)
		}
		if running, err := k.Running(t.Context()); len(running) > 0 || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("kubelet %s: running %v, %v", name, running, err)
		}
	}
}
