// Package cri asks a container runtime what it is, over the interface that kubelet uses (CRI v1).
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

// Status is what a runtime says of itself.
type Status struct {
	// Name is containerd or cri-o, Version that of its own.
	Name, Version string
	// CDI is whether it reads CDI specs as it runs now, which is not what its files say; Folders are where from.
	CDI     bool
	Folders []string
}

// Sockets are where runtimes listen, as the host names them: containerd's, that of k3s and RKE2, CRI-O's.
func Sockets() []string {
	return []string{"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/crio/crio.sock"}
}

// Find returns the path under which this process sees the socket; without one, that of the first runtime that listens.
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
	return "", fmt.Errorf("find the container runtime: no socket at %s: name it with --runtime-endpoint", strings.Join(candidates, ", "))
}

// Ask asks the runtime behind a socket, and waits until it answers or ctx ends: a runtime that is just restarting answers a little later.
func Ask(ctx context.Context, socket string) (Status, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return Status{}, fmt.Errorf("ask the container runtime at %s: %w", socket, err)
	}
	defer connection.Close()
	client := runtimeapi.NewRuntimeServiceClient(connection)
	version, err := version(ctx, client)
	if err != nil {
		return Status{}, fmt.Errorf("ask the container runtime at %s for its version: %w", socket, err)
	}
	running := Status{Name: version.GetRuntimeName(), Version: version.GetRuntimeVersion()}
	if running.Name != "containerd" {
		running.CDI = running.Name == "cri-o" // from 1.23 on, older than any that serves CRI v1 with DRA
		return running, nil
	}
	answer, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return Status{}, fmt.Errorf("ask the container runtime at %s how it is configured: %w", socket, err)
	}
	return running, running.read(answer.GetInfo()["config"])
}

// pause is between two questions to a runtime that is still starting.
const pause = 200 * time.Millisecond

// version asks again as long as the runtime is starting.
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

// starting reports whether the runtime listens and is not at work yet: containerd says so in words only, until it has looked at all its containers.
func starting(err error) bool {
	return status.Code(err) == codes.Unknown && strings.Contains(err.Error(), "server is not initialized yet")
}

// read takes from containerd's verbose status what its CRI plugin runs with.
func (s *Status) read(config string) error {
	var running struct {
		EnableCDI   *bool    `json:"enableCDI"`
		CDISpecDirs []string `json:"cdiSpecDirs"`
	}
	if config == "" {
		return errors.New("ask the container runtime how it is configured: containerd did not say")
	}
	if err := json.Unmarshal([]byte(config), &running); err != nil {
		return fmt.Errorf("ask the container runtime how it is configured: %w", err)
	}
	s.CDI, s.Folders = running.EnableCDI != nil && *running.EnableCDI, running.CDISpecDirs
	return nil
}
