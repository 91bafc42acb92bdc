package harness

import (
	"context"
	"encoding/json"
	"hash/crc32"
	"net"
	"os"

	"google.golang.org/grpc"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// containers is kubelet's pod resources API with one container.
type containers struct {
	podresources.UnimplementedPodResourcesListerServer
	resources []*podresources.DynamicResource
}

// List implements the pod resources API.
func (c *containers) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Name: "pod", Namespace: "default", Containers: []*podresources.ContainerResources{{Name: "main", DynamicResources: c.resources}}},
	}}, nil
}

// RunContainers makes kubelet have prepared the claims and list them in a container: in its state file, as kubelet 1.37 writes it, and in its pod
// resources API, until end is called.
func (h *Host) RunContainers(ctx context.Context, claims []*drapb.Claim) (end func(), err error) {
	type stored struct{ ClaimUID, ClaimName, Namespace string }
	state := struct {
		Kind               string   `json:"kind"`
		APIVersion         string   `json:"apiVersion"`
		ClaimInfoStateList []stored `json:"ClaimInfoStateList"`
	}{Kind: "DRACheckpoint", APIVersion: "checkpoint.dra.kubelet.k8s.io/v1"}
	api := &containers{}
	for _, claim := range claims {
		state.ClaimInfoStateList = append(state.ClaimInfoStateList, stored{claim.GetUid(), claim.GetName(), claim.GetNamespace()})
		api.resources = append(api.resources, &podresources.DynamicResource{ClaimName: claim.GetName(), ClaimNamespace: claim.GetNamespace()})
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	file, err := json.Marshal(struct {
		Data     string
		Checksum uint32
	}{string(data), crc32.ChecksumIEEE(data)})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(h.KubeletState(), file, 0o600); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", h.PodResources())
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, api)
	go func() { _ = server.Serve(listener) }()
	return server.Stop, nil
}
