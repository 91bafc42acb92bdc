package exporter

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Container is a container that uses an allocated device of a claim.
type Container struct {
	Namespace, Pod, Name string
	// Claim is the name of the claim, which is in the same namespace.
	Claim string
	// Pool, Device and ShareID identify the allocated device.
	Pool, Device, ShareID string
}

// Kubelet is kubelet's list of containers and their devices, the podresources API.
type Kubelet struct {
	// Socket is the path of kubelet's socket; it need not exist.
	Socket string
	// Driver is the name of the DRA driver whose devices are listed.
	Driver string
}

// maxAnswer is the maximum size of kubelet's response in bytes. Source: kubelet's own client.
const maxAnswer = 16 << 20

// Containers returns the containers of running pods that use a device of the driver. Init containers are not included,
// except restartable ones. Kubelet lists claims since Kubernetes 1.34.
func (k Kubelet) Containers(ctx context.Context) ([]Container, error) {
	connection, err := grpc.NewClient("unix:"+k.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("list the pods of kubelet: %w", err)
	}
	defer connection.Close()
	list, err := podresources.NewPodResourcesListerClient(connection).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of kubelet: %w", err)
	}
	var all []Container
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			all = append(all, k.devicesOf(pod, container)...)
		}
	}
	return all, nil
}

func (k Kubelet) devicesOf(pod *podresources.PodResources, container *podresources.ContainerResources) []Container {
	var all []Container
	for _, claim := range container.GetDynamicResources() {
		for _, device := range claim.GetClaimResources() {
			if device.GetDriverName() == k.Driver {
				all = append(all, Container{
					Namespace: pod.GetNamespace(), Pod: pod.GetName(), Name: container.GetName(), Claim: claim.GetClaimName(),
					Pool: device.GetPoolName(), Device: device.GetDeviceName(), ShareID: device.GetShareId(),
				})
			}
		}
	}
	return all
}
