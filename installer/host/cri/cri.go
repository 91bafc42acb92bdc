// Package cri reads the status of a container runtime over CRI v1, the interface that kubelet uses.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tessera-gpu/tessera/installer/host"
)

// Status is the status that a runtime reports.
type Status struct {
	// Name is containerd or cri-o, Version its version.
	Name, Version string
	// CDI reports whether the running runtime reads CDI specs, which can differ from its configuration files. Folders are the spec folders.
	CDI     bool
	Folders []string
}

// Sockets returns the host paths of the known runtime sockets: of containerd, of k3s and RKE2, of k0s, of MicroK8s, and of CRI-O.
func Sockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock", "/run/crio/crio.sock", "/var/run/crio/crio.sock",
	}
}

// Find returns the path under which this process accesses the socket. For an empty socket it returns the first known one that exists.
func Find(r host.Roots, socket string) (string, error) {
	candidates := Sockets()
	if socket != "" {
		return r.See(strings.TrimPrefix(socket, "unix://"))
	}
	for _, candidate := range candidates {
		seen, err := r.See(candidate)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(seen); err == nil {
			return seen, nil
		}
	}
	return "", fmt.Errorf("find the container runtime: no socket at %s; set --runtime-endpoint", strings.Join(candidates, ", "))
}

// ReadStatus returns the status of the runtime at a socket. It retries while the runtime is starting, until ctx ends.
func ReadStatus(ctx context.Context, socket string) (Status, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return Status{}, fmt.Errorf("connect to the container runtime at %s: %w", socket, err)
	}
	defer connection.Close()
	client := runtimeapi.NewRuntimeServiceClient(connection)
	version, err := version(ctx, client)
	if err != nil {
		return Status{}, fmt.Errorf("read the version of the container runtime at %s: %w", socket, err)
	}
	running := Status{Name: version.GetRuntimeName(), Version: version.GetRuntimeVersion()}
	if running.Name != "containerd" {
		running.CDI = running.Name == "cri-o" // since 1.23, which is older than any that serves CRI v1 with DRA
		return running, nil
	}
	answer, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return Status{}, fmt.Errorf("read the status of the container runtime at %s: %w", socket, err)
	}
	return running, running.read(answer.GetInfo()["config"])
}

// pause is the delay between two requests to a runtime that is starting.
const pause = 200 * time.Millisecond

// version requests the version, and retries while the runtime is starting.
func version(ctx context.Context, client runtimeapi.RuntimeServiceClient) (*runtimeapi.VersionResponse, error) {
	for {
		answer, err := client.Version(ctx, &runtimeapi.VersionRequest{})
		if err == nil || !starting(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// starting reports whether the runtime listens and is not ready. Containerd reports this only in the message, until it has loaded all containers.
func starting(err error) bool {
	return status.Code(err) == codes.Unknown && strings.Contains(err.Error(), "server is not initialized yet")
}

// read parses the CRI plugin's configuration from containerd's verbose status.
func (s *Status) read(config string) error {
	var running struct {
		EnableCDI   *bool    `json:"enableCDI"`
		CDISpecDirs []string `json:"cdiSpecDirs"`
	}
	if config == "" {
		return errors.New("read the status of the container runtime: containerd returned no configuration")
	}
	if err := json.Unmarshal([]byte(config), &running); err != nil {
		return fmt.Errorf("read the status of the container runtime: %w", err)
	}
	s.CDI, s.Folders = running.EnableCDI != nil && *running.EnableCDI, running.CDISpecDirs
	return nil
}
