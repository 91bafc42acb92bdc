package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// exporter has every GPU of the node open through NVML in a container, as dcgm-exporter does, until leave is called.
func (n *node) exporter() (leave func()) {
	n.t.Helper()
	const source = `#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v) {
	void *l = dlopen(v[1], RTLD_NOW);
	int (*init)(void) = l ? dlsym(l, "nvmlInit_v2") : 0;
	int failed = !init || init();
	puts(failed ? "failed" : "open");
	fflush(stdout);
	while (getchar() != EOF) {}
	return failed;
}`
	program := filepath.Join(n.dir, "dcgm-exporter")
	compiler := exec.CommandContext(n.t.Context(), "gcc", "-xc", "-", "-o", program, "-ldl")
	compiler.Stdin = strings.NewReader(source)
	if out, err := compiler.CombinedOutput(); err != nil {
		n.t.Fatalf("gcc: %v: %s", err, out)
	}
	n.must(fakegpu.MakeNodes(n.machine()))
	cmd := exec.CommandContext(n.t.Context(), "unshare", "--mount", "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`,
		fakegpu.DriverRoot(n.machine()), program, fakegpu.Library(n.machine()))
	cmd.Env = append(os.Environ(), "FAKE_NVML_DEV="+filepath.Join(fakegpu.DevRoot(n.machine()), "dev"))
	stdin, err := cmd.StdinPipe()
	n.must(err)
	stdout, err := cmd.StdoutPipe()
	n.must(err)
	n.must(cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "open\n" {
		n.t.Fatalf("the exporter: %q, %v", line, err)
	}
	return func() {
		_ = stdin.Close()
		n.must(cmd.Wait())
	}
}

// TestMIGModeWithMonitoring: the driver changes the MIG mode of no GPU that another program has open (nvml.h on nvmlDeviceSetMigMode), and dcgm-exporter
// has all GPUs open. The agent requests that monitoring leave the node, and prepares the claim when it has. While monitoring is back, MIG stays
// enabled after the last MIG device, and a claim for the whole GPU makes it leave again.
func TestMIGModeWithMonitoring(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	i := newInstaller(n)
	i.create()
	leave := n.exporter()
	_, k := n.run()
	pauses := func(what string, want bool) {
		t.Helper()
		i.eventually(what, func(ctx context.Context) error {
			s, err := i.agent(ctx)
			if err != nil || s.PausesMonitoring() != want {
				return fmt.Errorf("changes %+v, %w", s.BusyGPUs, err)
			}
			return nil
		})
	}
	claim := n.claim("mig", []gpu.Device{n.slice(0, 19, 0)})
	prepared := make(chan struct{})
	go func() {
		defer close(prepared)
		k.eventuallyPrepares("a MIG device", claim)
	}()
	pauses("the agent requests that monitoring leave", true)
	if s, err := i.agent(t.Context()); err != nil || s.BusyGPUs[0].GPU != n.whole(0).GPU || s.BusyGPUs[0].State != v1alpha1.BusyPausingMonitoring {
		t.Errorf("changes %+v, %v", s.BusyGPUs, err)
	}
	leave() // as the installer makes it
	<-prepared
	pauses("monitoring may return", false)

	leave = n.exporter()
	k.mustUnprepare(claim)
	if g := n.truth().GPUs[0]; !g.MIG || len(g.Instances) > 0 {
		t.Errorf("after the last MIG device, with monitoring: %+v, want MIG to stay enabled", g)
	}
	pauses("a mode that no claim needs is not worth a pause", false)
	whole := n.claim("whole", []gpu.Device{n.whole(0)})
	prepared = make(chan struct{})
	go func() {
		defer close(prepared)
		k.eventuallyPrepares("the whole GPU", whole)
	}()
	pauses("the agent requests it for the whole GPU, too", true)
	leave()
	<-prepared
	k.mustUnprepare(whole)
	n.isClean()
}

// TestMIGDevicePinnedByMonitoring: the driver keeps a MIG device that no process uses while monitoring has the GPU open. The claim's Event names the program,
// and the device is destroyed when it has ended.
func TestMIGDevicePinnedByMonitoring(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.must(fakegpu.PinMIG(n.machine(), 0))
	_, k := n.run()
	claim := n.claim("mig", []gpu.Device{n.slice(0, 19, 0)}, onNode(n))
	k.eventuallyPrepares("a MIG device", claim)
	leave := n.exporter()
	if err := k.unprepare(claim); err == nil || !strings.Contains(err.Error(), "the driver does not destroy an unused MIG device") {
		t.Errorf("with monitoring: %v", err)
	}
	if len(n.truth().GPUs[0].Instances) != 1 {
		t.Error("the fake driver does not keep the MIG device")
	}
	leave()
	k.mustUnprepare(claim)
	n.isClean()
}

// TestMIGModeWithMonitoringWithoutInstaller: nothing removes monitoring, and the claim's Event names what prevents the change.
func TestMIGModeWithMonitoringWithoutInstaller(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	leave := n.exporter()
	_, k := n.run()
	claim := n.claim("mig", []gpu.Device{n.slice(0, 19, 0)}, onNode(n))
	if _, err := k.prepare(claim); err == nil || !strings.Contains(err.Error(), "In use by another client") {
		t.Errorf("with another client: %v", err)
	}
	if message := n.warns(claim, "DeviceBusy"); !strings.Contains(message, "the driver changes the MIG mode only while no other program has the GPU open") {
		t.Errorf("the Event is %q", message)
	}
	leave()
	k.eventuallyPrepares("a MIG device", claim)
	k.mustUnprepare(claim)
	n.isClean()
}
