// Package podresources lists the containers of the node with their devices, from kubelet's pod resources API.
package podresources

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// maxResponse is the maximum size of kubelet's response in bytes. Source: kubelet's own client.
const maxResponse = 16 << 20

// List returns the running pods of the kubelet with the socket. Init containers are not included, except restartable ones. Kubelet lists claims since
// Kubernetes 1.34. It fails if kubelet does not run.
func List(ctx context.Context, socket string) ([]*api.PodResources, error) {
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, err
	}
	defer connection.Close() //nolint:errcheck // the response was received
	response, err := api.NewPodResourcesListerClient(connection).List(ctx, &api.ListPodResourcesRequest{})
	return response.GetPodResources(), err
}
