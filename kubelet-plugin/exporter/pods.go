package exporter

import (
	"context"
	"fmt"

	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tessera-gpu/tessera/kubelet-plugin/podresources"
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

// Containers returns the containers of running pods that use a device of the driver. Init containers are not included,
// except restartable ones. Kubelet lists claims since Kubernetes 1.34.
func (k Kubelet) Containers(ctx context.Context) ([]Container, error) {
	pods, err := podresources.List(ctx, k.Socket)
	if err != nil {
		return nil, fmt.Errorf("list the pods of kubelet: %w", err)
	}
	var all []Container
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			all = append(all, k.devicesOf(pod, container)...)
		}
	}
	return all, nil
}

func (k Kubelet) devicesOf(pod *api.PodResources, container *api.ContainerResources) []Container {
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
