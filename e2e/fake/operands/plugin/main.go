// Command plugin is a device plugin of the classic kind: it offers the GPUs of its node to kubelet as nvidia.com/gpu, and passes only their names to
// containers. It takes the place of the plugin in a cluster that migrates to Tessera.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "nvidia.com/gpu"
	socket   = "nvidia-gpu.sock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

// run serves kubelet until ctx ends. GPUS is the number of GPUs.
func run(ctx context.Context) error {
	count, err := strconv.Atoi(os.Getenv("GPUS"))
	if err != nil {
		return fmt.Errorf("read GPUS: %w", err)
	}
	path := filepath.Join(api.DevicePluginPath, socket)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: count, ended: ctx})
	context.AfterFunc(ctx, server.Stop)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := register(ctx); err != nil {
		return err
	}
	return <-served
}

// register registers the plugin with kubelet.
func register(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // it has been used
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: resource})
	if err != nil {
		return fmt.Errorf("register with kubelet: %w", err)
	}
	return nil
}

// plugin serves kubelet.
type plugin struct {
	api.UnimplementedDevicePluginServer
	count int
	ended context.Context //nolint:containedctx // of the process: streams end with it
}

// GetDevicePluginOptions returns no options.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends all GPUs once: the list never changes.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var list api.ListAndWatchResponse
	for i := range p.count {
		list.Devices = append(list.Devices, &api.Device{ID: fmt.Sprintf("gpu-%d", i), Health: api.Healthy})
	}
	if err := stream.Send(&list); err != nil {
		return err
	}
	select {
	case <-p.ended.Done():
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate names the devices in the container's environment.
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	var response api.AllocateResponse
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return &response, nil
}
