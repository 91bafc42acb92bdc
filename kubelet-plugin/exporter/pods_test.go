package exporter

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// lister is kubelet's side of the API.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

func (l lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: l.pods}, nil
}

func TestContainers(t *testing.T) {
	share := "share"
	device := func(driver, name string) *podresources.ClaimResource {
		return &podresources.ClaimResource{DriverName: driver, PoolName: "pool", DeviceName: name, ShareId: &share}
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, lister{pods: []*podresources.PodResources{
		{Name: "a", Namespace: "ns", Containers: []*podresources.ContainerResources{
			{Name: "main", DynamicResources: []*podresources.DynamicResource{
				{ClaimName: "claim", ClaimNamespace: "ns", ClaimResources: []*podresources.ClaimResource{device("ours", "gpu-0"), device("theirs", "nic-0")}},
			}},
			{Name: "side"},
		}},
		{Name: "b", Namespace: "ns"},
	}})
	socket := filepath.Join(t.TempDir(), "s")
	k := Kubelet{Socket: socket, Driver: "ours"}
	if _, err := k.Containers(t.Context()); err == nil {
		t.Error("no kubelet: no error")
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	got, err := k.Containers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Container{{"ns", "a", "main", "claim", "pool", "gpu-0", "share"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}
