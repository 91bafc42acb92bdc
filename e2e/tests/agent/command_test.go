package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func TestGatherInfo(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a30x4l40sx4")
	out, err := exec.Command(shared.agent, "gatherinfo", "--config="+n.config(), "--node-name="+n.name).Output()
	n.must(err)
	var facts struct{ Node gpu.Node }
	n.must(json.Unmarshal(out, &facts))
	if got, want := len(facts.Node.GPUs), len(n.hardware.GPUs); got != want {
		t.Fatalf("%d GPUs, want %d", got, want)
	}
	for i, g := range facts.Node.GPUs {
		want := n.hardware.GPUs[i]
		if diff := cmp.Diff([]any{want.Name(), want.Product, want.TogglesMIG(), want.Geometry.Slices()},
			[]any{g.Name(), g.Product, g.TogglesMIG(), g.Geometry.Slices()}); diff != "" {
			t.Errorf("GPU %d (-want +got):\n%s", i, diff)
		}
	}
	n.must(fakegpu.RemoveDriver(n.machine()))
	if err := exec.Command(shared.agent, "gatherinfo", "--config="+n.config()).Run(); err == nil {
		t.Error("gathered without a driver")
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	ready := func(a *agent) (string, error) {
		out, err := exec.Command(shared.agent, "ready", "--socket="+a.socket()).CombinedOutput()
		return string(out), err
	}
	a := n.start(shared.agent, "pod")
	a.metric("tessera_gpus 2")
	if out, err := ready(a); err == nil || !strings.Contains(out, "kubelet") {
		t.Errorf("before kubelet came: %q, %v", out, err)
	}
	if out, err := exec.Command(shared.agent, "live", "--socket="+a.socket()).CombinedOutput(); err != nil {
		t.Errorf("it counts as hung: %q, %v", out, err)
	}
	a.connect()
	n.eventually("it is ready", func(context.Context) error { // not while a change is on its way to the API server for long
		out, err := ready(a)
		if err != nil {
			err = fmt.Errorf("%q, %w", out, err)
		}
		return err
	})
	a.kill()
	if _, err := ready(a); err == nil {
		t.Error("ready after its death")
	}
}

func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	n.configure("shaeps: [mig]\n")
	out, err := exec.Command(shared.agent, "--config="+n.config(), "--kubeconfig="+shared.kubeconfig).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `unknown field "shaeps"`) {
		t.Errorf("an unknown key: %q, %v", out, err)
	}
}
