package gpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

// agents answers for the agent of gpu-a with two containers of a claim and one of a released claim; without the name of a GPU it fails.
type agents struct{ gpuName string }

func (a agents) Run(_ context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error) {
	if a.gpuName == "" || pod.Spec.NodeName != "gpu-a" || container != "agent" || strings.Join(command, " ") != "tessera-node metrics" {
		return nil, errors.New("exec is not allowed")
	}
	var text strings.Builder
	for _, metric := range []string{usedMetric, limitMetric} {
		fmt.Fprintf(&text, "# TYPE %s gauge\n", metric)
		for i, labels := range []string{`claim="CLAIM",container="main",pod="notebook-a"`, `claim="CLAIM",container="extra",pod="notebook-a"`, `claim="gone",container="main",pod="x"`} {
			bytes := []int{3, 1, 2}[i] << 30
			if metric == limitMetric {
				bytes = 24 << 30
			}
			fmt.Fprintf(&text, "%s{gpu=%q,namespace=\"demo\",node=\"gpu-a\",%s} %d\n", metric, a.gpuName, strings.ReplaceAll(labels, "CLAIM", "notebook-a"), bytes)
		}
	}
	return []byte(text.String()), nil
}

// TestUsage shows what containers have allocated below their claim; a node whose agent cannot be queried is a problem.
func TestUsage(t *testing.T) {
	s := clustertest.Everyday(t)
	s.Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "tessera-node-x", Labels: map[string]string{"app.kubernetes.io/name": "tessera-node"}},
		Spec:       corev1.PodSpec{NodeName: "gpu-a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	var out, errOut bytes.Buffer
	r := request{
		names: []string{"gpu-a/3"}, usage: true, runner: agents{s.GPUName("gpu-a", 3)}, answer: output.Flags{Format: output.Text, Color: "auto"},
		now: func() time.Time { return clustertest.Now }, out: &out, errOut: &errOut,
	}
	if err := run(t.Context(), s.Cluster(), r); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"        extra of notebook-a: 1Gi of 24Gi allocated", "        main of notebook-a: 3Gi of 24Gi allocated"} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
	out.Reset()
	r.runner = agents{}
	if err := run(t.Context(), s.Cluster(), r); err != nil {
		t.Fatal(err)
	}
	if want := "Memory of containers on node gpu-a is missing: exec is not allowed"; !strings.Contains(out.String(), want) || strings.Contains(out.String(), "allocated\n") {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
