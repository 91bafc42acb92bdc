package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// claims answers by the claim's name.
type claims struct {
	// barrier, when set, is waited for by every claim: only claims that run at once get past it.
	barrier *sync.WaitGroup
}

func (c claims) Prepare(_ context.Context, claim prepare.Claim) ([]prepare.Answer, error) {
	if c.barrier != nil {
		c.barrier.Done()
		c.barrier.Wait()
	}
	switch claim.Name {
	case "busy":
		return nil, fmt.Errorf("destroy it first: %w", gpu.ErrBusy)
	case "cancelled":
		return nil, fmt.Errorf("the agent ends: %w", context.Canceled)
	case "panics":
		panic("no such thing")
	}
	result := prepare.Result{Request: "r/sub", Pool: "pool", Device: "device-" + claim.Name, ShareID: claim.UID + "-share"}
	return []prepare.Answer{{Prepared: prepare.Prepared{Result: result}, CDIDevices: []string{"a/b=" + claim.UID}}}, nil
}

func (c claims) Unprepare(_ context.Context, claim prepare.Ref) error {
	if claim.Name == "busy" {
		return gpu.ErrBusy
	}
	return nil
}

func translate(object *resourceapi.ResourceClaim) (prepare.Claim, error) {
	if object.Name == "unreadable" {
		return prepare.Claim{}, errors.New("field x: unknown")
	}
	return prepare.Claim{
		Ref:    prepare.Ref{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name},
		Wanted: []prepare.Wanted{{Use: gpu.Device{Use: gpu.Use{Shape: gpu.Whole}}}},
	}, nil
}

func claim(name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status:     resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
	}
}

// folder returns a new folder whose path leaves room for the name of a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "server")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func config(t *testing.T, names ...string) Config {
	t.Helper()
	var objects []k8sruntime.Object
	for _, name := range names {
		objects = append(objects, claim(name))
	}
	return Config{
		Driver: "gpu.tessera.dev", Node: "node1", PodUID: "b5c0",
		PluginDir: folder(t), RegistryDir: folder(t),
		Client: fake.NewClientset(objects...), Claims: claims{}, Translate: translate,
		Status: &recordedStatus{}, Health: newMachine(t), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// run starts the server and waits until its registration socket answers.
func run(t *testing.T, s *Server) (registerapi.RegistrationClient, drapb.DRAPluginClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	registration := registerapi.NewRegistrationClient(dial(t, waitForSocket(t, s.RegistryDir, "*reg.sock")))
	info, err := registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{drapb.DRAPluginService, "v1beta1.DRAPlugin", drahealthv1.DRAResourceHealthService, drahealthv1alpha1.DRAResourceHealthService}
	if info.GetName() != s.Driver || !cmp.Equal(info.GetSupportedVersions(), want) {
		t.Errorf("registered as %s with %v, want %s with %v", info.GetName(), info.GetSupportedVersions(), s.Driver, want)
	}
	return registration, drapb.NewDRAPluginClient(dial(t, info.GetEndpoint()))
}

func waitForSocket(t *testing.T, dir, pattern string) string {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); <-tick.C {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) == 1 {
			return found[0]
		}
	}
	t.Fatalf("no socket %s in %s", pattern, dir)
	return ""
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func requests(names ...string) []*drapb.Claim {
	var list []*drapb.Claim
	for _, name := range names {
		list = append(list, &drapb.Claim{Namespace: "ns", Name: name, Uid: "uid-" + name})
	}
	return list
}

func TestEachClaimGetsItsOwnResult(t *testing.T) {
	names := []string{"good", "busy", "panics", "unreadable"}
	s := New(config(t, names...))
	_, kubelet := run(t, s)
	prepared, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: requests(names...)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*drapb.NodePrepareResourceResponse{
		"uid-good": {Devices: []*drapb.Device{{
			RequestNames: []string{"r"}, PoolName: "pool", DeviceName: "device-good",
			CdiDeviceIds: []string{"a/b=uid-good"}, ShareId: new("uid-good-share"),
		}}},
		"uid-busy":       {Error: "destroy it first: in use"},
		"uid-panics":     {Error: "bug in the agent: no such thing"},
		"uid-unreadable": {Error: "field x: unknown"},
	}
	if diff := cmp.Diff(want, prepared.GetClaims(), protocmp.Transform()); diff != "" {
		t.Errorf("prepared (-want +got):\n%s", diff)
	}
	unprepared, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: requests("good", "busy")})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := unprepared.GetClaims()["uid-good"].GetError(), unprepared.GetClaims()["uid-busy"].GetError(); a != "" || b != "in use" {
		t.Errorf("unprepared: good %q, busy %q", a, b)
	}
	expected := `
# HELP tessera_claim_errors_total Failed calls to prepare or unprepare a claim, by reason.
# TYPE tessera_claim_errors_total counter
tessera_claim_errors_total{operation="prepare",reason="busy"} 1
tessera_claim_errors_total{operation="prepare",reason="other"} 1
tessera_claim_errors_total{operation="prepare",reason="panic"} 1
tessera_claim_errors_total{operation="unprepare",reason="busy"} 1
`
	if err := testutil.CollectAndCompare(s.Metrics.errors, strings.NewReader(expected)); err != nil {
		t.Error(err)
	}
}

func TestClaimsOfOneCallRunConcurrently(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	c := config(t, names...)
	barrier := &sync.WaitGroup{}
	barrier.Add(len(names))
	c.Claims = claims{barrier: barrier}
	_, kubelet := run(t, New(c))
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if _, err := kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: requests(names...)}); err != nil {
		t.Errorf("four claims that wait for each other: %v", err)
	}
}

func TestRunWaitsForCallInProgress(t *testing.T) {
	c := config(t, "a")
	barrier := &sync.WaitGroup{}
	barrier.Add(2)
	c.Claims = claims{barrier: barrier}
	s := New(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	kubelet := drapb.NewDRAPluginClient(dial(t, waitForSocket(t, s.PluginDir, "dra*.sock")))
	called := make(chan error, 1)
	go func() {
		_, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: requests("a")})
		called <- err
	}()
	for testutil.ToFloat64(s.Metrics.inFlight.WithLabelValues("prepare")) != 1 {
		runtime.Gosched()
	}
	cancel()
	select {
	case err := <-ended:
		t.Errorf("the server ended below a call: %v", err)
	case <-time.After(2 * drainIdle):
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(harness.Patience); ; <-tick.C {
		left, err := filepath.Glob(filepath.Join(s.RegistryDir, "*"))
		if len(left) == 0 && err == nil {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("kubelet still finds %q, %v", left, err)
		}
	}
	barrier.Done()
	if err := <-called; err != nil {
		t.Errorf("the call: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRegistered(t *testing.T) {
	s := New(config(t))
	registration, _ := run(t, s)
	if s.Registered() {
		t.Error("registered before kubelet confirmed it")
	}
	if _, err := registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no"}); err == nil || s.Registered() {
		t.Error("a refusal was taken for a registration")
	}
	if _, err := registration.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil || !s.Registered() {
		t.Errorf("not registered after kubelet confirmed it: %v", err)
	}
}

func TestOnlyFatalErrorEndsRun(t *testing.T) {
	s := New(config(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	waitForSocket(t, s.RegistryDir, "*reg.sock")
	p := &plugin{s}
	p.HandleError(ctx, fmt.Errorf("later: %w", kubeletplugin.ErrRecoverable), "publishing")
	want := errors.New("listener broke")
	p.HandleError(ctx, want, "serving")
	if err := <-result; !errors.Is(err, want) {
		t.Errorf("Run: %v, want %v", err, want)
	}
}

func TestStaleSocketsAreRemoved(t *testing.T) {
	c := config(t)
	dead := []string{
		filepath.Join(c.PluginDir, "dra.sock"), filepath.Join(c.PluginDir, "dra-old.sock"),
		filepath.Join(c.RegistryDir, c.Driver+"-reg.sock"), filepath.Join(c.RegistryDir, c.Driver+"-old-reg.sock"),
	}
	foreign := filepath.Join(c.RegistryDir, "other.example.com-reg.sock")
	for _, socket := range append(dead, foreign) {
		abandon(t, socket)
	}
	alive := filepath.Join(c.RegistryDir, c.Driver+"-alive-reg.sock")
	listener, err := net.Listen("unix", alive)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	if err := removeStaleSockets(t.Context(), c.Driver, c.PluginDir, c.RegistryDir); err != nil {
		t.Fatal(err)
	}
	for _, socket := range dead {
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", socket)
		}
	}
	for _, socket := range []string{foreign, alive} {
		if _, err := os.Lstat(socket); err != nil {
			t.Errorf("%s must stay: %v", socket, err)
		}
	}
}

// abandon leaves a socket as a killed process does.
func abandon(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 1), syscall.Close(fd)); err != nil {
		t.Fatal(err)
	}
}

func TestShapeOf(t *testing.T) {
	whole := prepare.Wanted{Use: gpu.Device{Use: gpu.Use{Shape: gpu.Whole}}}
	slice := prepare.Wanted{Use: gpu.Device{Use: gpu.Use{Shape: gpu.MIG}}}
	for want, wanted := range map[string][]prepare.Wanted{
		"": nil, "gpu": {whole, whole}, "mig": {slice}, "mixed": {slice, whole, whole},
	} {
		if got := shapeOf(prepare.Claim{Wanted: wanted}); got != want {
			t.Errorf("shapeOf(%v) = %q, want %q", wanted, got, want)
		}
	}
}
