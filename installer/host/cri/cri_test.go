package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/installer/host"
)

// server is a runtime with configured responses.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name, version, config string
	// starting, when set, is how many questions it answers as containerd does before it is at work.
	starting *atomic.Int32
}

func (s server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if s.starting != nil && s.starting.Add(-1) >= 0 {
		return nil, errors.New("server is not initialized yet")
	}
	return &runtimeapi.VersionResponse{RuntimeName: s.name, RuntimeVersion: s.version, RuntimeApiVersion: "v1"}, nil
}

func (s server) Status(_ context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	answer := &runtimeapi.StatusResponse{}
	if r.GetVerbose() && s.config != "" {
		answer.Info = map[string]string{"config": s.config}
	}
	return answer, nil
}

// serve listens on the socket until the test ends.
func (s server) serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func several(n int32) *atomic.Int32 {
	var count atomic.Int32
	count.Store(n)
	return &count
}

func TestReadStatus(t *testing.T) {
	tests := map[string]struct {
		server server
		want   Status
		fails  string
	}{
		"containerd with CDI": {server{name: "containerd", version: "v2.2.1", config: `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"],"x":{}}`},
			Status{Name: "containerd", Version: "v2.2.1", CDI: true, Folders: []string{"/etc/cdi", "/var/run/cdi"}}, ""},
		"containerd at its start": {server{name: "containerd", version: "1.7.29", config: `{"enableCDI":true}`, starting: several(2)},
			Status{Name: "containerd", Version: "1.7.29", CDI: true}, ""},
		"containerd without":                 {server{name: "containerd", version: "1.7.27", config: `{"enableCDI":false}`}, Status{Name: "containerd", Version: "1.7.27"}, ""},
		"CRI-O":                              {server{name: "cri-o", version: "1.33.0"}, Status{Name: "cri-o", Version: "1.33.0", CDI: true}, ""},
		"containerd without a configuration": {server{name: "containerd", version: "1.7.27"}, Status{}, "returned no configuration"},
		"containerd with invalid JSON":       {server{name: "containerd", version: "1.7.27", config: "{"}, Status{}, "read the status"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			test.server.serve(t, socket)
			got, err := ReadStatus(t.Context(), socket)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v lacks %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadStatusWaitsForTheRuntime checks that a restarting runtime is waited for, but not longer than the limit.
func TestReadStatusWaitsForTheRuntime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := ReadStatus(ctx, socket)
		answered <- err
	}()
	server{name: "cri-o", version: "1"}.serve(t, socket)
	if err := <-answered; err != nil {
		t.Errorf("a runtime that came: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := ReadStatus(short, socket+"-missing"); err == nil {
		t.Error("a runtime that never came answered")
	}
}

func TestFind(t *testing.T) {
	root := t.TempDir()
	r := host.Roots{Host: root}
	if got, err := Find(r, "unix:///run/x.sock"); err != nil || got != filepath.Join(root, "run/x.sock") {
		t.Errorf("named: %q, error %v", got, err)
	}
	if _, err := Find(r, ""); err == nil {
		t.Error("found one where none is")
	}
}

// TestFindSocketsOfDistributions checks the sockets of k0s and MicroK8s (NVIDIA/gpu-operator#1323 and #7).
func TestFindSocketsOfDistributions(t *testing.T) {
	for _, socket := range []string{"/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"} {
		root := t.TempDir()
		path := filepath.Join(root, socket)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Find(host.Roots{Host: root}, ""); err != nil || got != path {
			t.Errorf("%s: found %s, error %v", socket, got, err)
		}
	}
}
