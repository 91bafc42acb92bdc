package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// resize has the running agent change the limit of the claim, with the command that tessera shares resize runs in its pod.
func (a *agent) resize(claim *drapb.Claim, mib int) (result limiter.Resized, err error) {
	var stderr bytes.Buffer
	cmd := exec.Command(shared.agent, "resize", "--socket="+a.socket(), "--claim="+claim.GetUid(), fmt.Sprintf("--bytes=%d", mib<<20))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return result, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return result, json.Unmarshal(out, &result)
}

// The limit of a claim changes while a CUDA program of a container in the real runc has memory allocated: it is what the driver then reports to the program, it
// is not below what is allocated, and a container that starts later has it too, also after a restart of the agent.
func TestResize(t *testing.T) {
	for name, backend := range map[string]fakegpu.MemoryBackend{"misc": fakegpu.Misc, "dmem": fakegpu.Dmem} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t, backend)
			const controllers = "misc,dmem"
			g := l.hardware.GPUs[0]
			claim := l.claim("grows", []gpu.Device{{GPU: g.Name(), Use: gpu.Use{Shape: gpu.TimeShare}}}, takes("2Gi", ""), wishes("GPUConfig", `"memoryLimit":"4Gi"`), onNode(l.node))
			devices := l.kubelet.mustPrepare(claim)
			input, end, err := os.Pipe()
			l.must(err)
			defer end.Close()
			l.container, l.stage.Input = "main", input
			output := make(chan string, 1)
			go func() { output <- l.run(controllers, devices, "keep=1500") }()
			l.agent.metric(fmt.Sprintf(`tessera_container_memory_used_bytes{claim=%q,container="main",gpu=%q,namespace="default",node=%q,pod="train-0",product=%q,uuid=%q} %g`,
				claim.GetName(), g.Name(), l.name, g.Product, g.UUID, float64(1756<<20)))
			for _, step := range []struct {
				mib, before int
				refused     string
			}{
				{mib: 4096, before: 2048},
				{mib: 4097, refused: "must be at most 4Gi"},
				{mib: 1755, refused: `container "main" of pod "train-0" has allocated 1756Mi`},
				{mib: 1756, before: 4096},
				{mib: 3072, before: 1756},
			} {
				got, err := l.agent.resize(claim, step.mib)
				want := limiter.Resized{Request: got.Request, BeforeBytes: uint64(step.before) << 20, Containers: 1}
				switch {
				case step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)):
					t.Errorf("%d MiB: %v, want %q", step.mib, err, step.refused)
				case step.refused == "" && (err != nil || fmt.Sprint(got) != fmt.Sprint(want)):
					t.Errorf("%d MiB: %+v, %v, want %+v", step.mib, got, err, want)
				}
				if step.before == 2048 {
					if message := l.reports(claim, corev1.EventTypeNormal, "MemoryLimitChanged"); !strings.Contains(message, "can allocate 4Gi of GPU memory") {
						t.Errorf("Event %q", message)
					}
				}
			}
			l.must(end.Close())
			if got := <-output; got != "1316 of 3072 MiB" {
				t.Errorf("the container: %q", got)
			}
			l.stage.Input = nil
			if got := l.run(controllers, devices, "memory"); got != "2816 of 3072 MiB" {
				t.Errorf("a later container: %q", got)
			}
			l.agent.terminate()
			l.node.run()
			if got := l.run(controllers, devices, "memory"); got != "2816 of 3072 MiB" {
				t.Errorf("after a restart of the agent: %q", got)
			}
		})
	}
}

// A claim whose limit cannot be raised as its parameters demand is refused, with an Event that has the reason.
func TestMemoryLimitIsRefused(t *testing.T) {
	l := newLimits(t, fakegpu.Misc)
	for name, test := range map[string]struct {
		shape       gpu.Shape
		limit, want string
	}{
		"below":     {gpu.TimeShare, "1Gi", "memoryLimit: 1073741824 bytes: is below the 2147483648 bytes of memory that the claim requests"},
		"above":     {gpu.TimeShare, "200Gi", "memoryLimit: 214748364800 bytes: is more than the"},
		"unlimited": {gpu.MPS, "4Gi", "memoryLimit: the memory of devices of type mps is not limited on this GPU"},
	} {
		claim := l.claim(name, []gpu.Device{l.shapeOf(0, test.shape)}, takes("2Gi", ""), wishes("GPUConfig", fmt.Sprintf(`"memoryLimit":%q`, test.limit)), onNode(l.node))
		if _, err := l.kubelet.prepare(claim); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if message := l.warns(claim, "Unsupported"); !strings.Contains(message, test.want) {
			t.Errorf("%s: Event %q", name, message)
		}
	}
}
