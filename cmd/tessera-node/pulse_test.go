package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/dra-driver/publish"
	"github.com/tessera-gpu/tessera/kubelet-plugin/monitoring"
	"github.com/tessera-gpu/tessera/kubelet-plugin/status"
)

// noFaults is a store without faults.
type noFaults struct{}

func (noFaults) LoadHealth() (gpu.Health, error)                  { return gpu.Health{}, nil }
func (noFaults) SaveHealth(gpu.Health, func() bool) (bool, error) { return true, nil }

// driverThatHangs returns from no call.
type driverThatHangs struct{ health.Hardware }

func (driverThatHangs) WatchEvents(ctx context.Context, _ func(gpu.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (driverThatHangs) Check(ctx context.Context, _ string) (gpu.Checkup, error) {
	<-ctx.Done()
	return gpu.Checkup{}, ctx.Err()
}

func (driverThatHangs) ChangedSince(time.Time) bool { return false }
func (driverThatHangs) Present(string) bool         { return true }

// oneGPU is the inventory of a node with one GPU.
type oneGPU struct{}

func (oneGPU) Watch() (gpu.Node, bool, <-chan struct{}) {
	return gpu.Node{Name: "node1", GPUs: []gpu.GPU{{PCI: "0000:3b:00.0"}}}, true, nil
}

// The agent is live while its driver hangs and while no event occurs, and hangs if the loop of the monitor is blocked, here by a lock in its port Leads.
func TestPulseFindsBlockedLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lock := make(chan struct{}, 1) // a mutex, on which time passes in the bubble
		monitor, err := health.New(ctx, health.Config{
			Hardware: driverThatHangs{}, Store: noFaults{}, Inventory: oneGPU{}, Report: func([]gpu.Fault) {},
			Boot: "boot", Leads: func() bool {
				lock <- struct{}{}
				<-lock
				return true
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		a := &agent{
			liveness: newLiveness(), monitor: monitor, monitoring: monitoring.New(monitoring.Config{}),
			status: status.New(status.Config{Registry: prometheus.NewRegistry()}), publisher: publish.New(publish.Config{Client: fake.NewClientset()}),
		}
		go func() { _ = a.monitor.Run(ctx) }()
		go func() { _ = a.pulse(ctx) }()
		<-time.After(time.Hour)
		if err := a.liveness.Check(); err != nil {
			t.Error(err)
		}
		lock <- struct{}{}
		locked := time.Now()
		err = a.liveness.Await(ctx)
		if held := time.Since(locked); err == nil || held < hangLimit || held > 2*hangLimit {
			t.Errorf("the blocked loop is found after %v: %v", held, err)
		}
		<-lock
		cancel()
	})
}
