package lab_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a minimal device plugin that makes kubelet request a CDI device from containerd: one device of the CDI kind
// lab.test/device.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource corev1.ResourceName
	one      resource.Quantity
	stop     <-chan struct{}
}

// servePlugin serves a plugin in a node's device plugin folder, by its path on the host, and registers it. It stops
// when the test ends.
func servePlugin(t *testing.T, folder string) *plugin {
	t.Helper()
	const name = "lab.sock"
	p := &plugin{resource: "lab.test/device", one: resource.MustParse("1"), stop: t.Context().Done()}
	if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go server.Serve(listener) //nolint:errcheck // ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the answer was read
	request := &pluginapi.RegisterRequest{Version: pluginapi.Version, Endpoint: name, ResourceName: string(p.resource)}
	if _, err := pluginapi.NewRegistrationClient(conn).Register(t.Context(), request, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return p
}

// GetDevicePluginOptions returns the default options.
func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch publishes the device until the test ends.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	devices := []*pluginapi.Device{{ID: "one", Health: pluginapi.Healthy}}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.stop:
	}
	return nil
}

// Allocate returns the name of the CDI device.
func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.GetContainerRequests() {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			CdiDevices: []*pluginapi.CDIDevice{{Name: "lab.test/device=one"}},
		})
	}
	return response, nil
}
