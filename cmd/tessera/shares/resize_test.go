package shares

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// agent answers for the agent of gpu-a, with the error if there is one.
type agent struct {
	t       *testing.T
	answer  limiter.Resized
	err     error
	command string
}

func (a *agent) Run(_ context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error) {
	if pod.Name != "tessera-node-x" || container != "agent" {
		a.t.Errorf("runs in %s of %s", container, pod.Name)
	}
	a.command = strings.Join(command, " ")
	text, err := json.Marshal(a.answer)
	if err != nil {
		a.t.Fatal(err)
	}
	return text, a.err
}

func TestResize(t *testing.T) {
	agentPod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tessera-system", Name: "tessera-node-x", Labels: map[string]string{"app.kubernetes.io/name": "tessera-node"}},
		Spec:       corev1.PodSpec{NodeName: "gpu-a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for name, test := range map[string]struct {
		claim, request  string
		without         bool
		agent           agent
		command         string
		out, errOut, is string
	}{
		"a claim": {
			claim: "notebook-a", agent: agent{answer: limiter.Resized{Request: "gpu", BeforeBytes: 24 << 30, Containers: 2}},
			command: "tessera-node resize --claim UID --bytes 6979321856",
			out:     "resourceclaim.resource.k8s.io/notebook-a: memory limit of each share of request gpu changed from 24Gi to 6656Mi (2 running containers)\n",
		},
		"more than there is": {
			claim: "notebook-a", request: "gpu",
			agent: agent{answer: limiter.Resized{
				Request: "gpu", BeforeBytes: 1 << 30, Containers: 1, Exceeded: []limiter.Exceeded{{GPU: "gpu-3", LimitBytes: 90 << 30, ShareableBytes: 79 << 30}},
			}},
			command: "tessera-node resize --claim UID --bytes 6979321856 --request gpu",
			out:     "resourceclaim.resource.k8s.io/notebook-a: memory limit of each share of request gpu changed from 1Gi to 6656Mi (1 running container)\n",
			errOut:  "Warning: the limits on gpu-3 of node gpu-a are 90Gi together, and its shares have 79Gi: an allocation below a limit can fail\n",
		},
		"refused":       {claim: "notebook-a", agent: agent{err: errors.New("/resize: must be at most 4Gi")}, is: "node gpu-a: /resize: must be at most 4Gi"},
		"unknown claim": {claim: "other", is: `no claim on GPUs is named "other" in namespace demo`},
		"pending claim": {claim: "large", is: "claim demo/large is Pending: it has no devices of a node"},
		"no agent":      {claim: "notebook-a", without: true, is: "no agent runs on node gpu-a in namespace tessera-system"},
	} {
		t.Run(name, func(t *testing.T) {
			s := clustertest.Everyday(t)
			if !test.without {
				s.Add(agentPod)
			}
			var out, errOut bytes.Buffer
			test.agent.t = t
			r := request{claim: test.claim, request: test.request, bytes: 13 << 29, runner: &test.agent, out: &out, errOut: &errOut}
			err := r.run(t.Context(), s.Cluster())
			if test.is != "" {
				if err == nil || !strings.Contains(err.Error(), test.is) {
					t.Errorf("error %v, want %q", err, test.is)
				}
				return
			}
			command := test.agent.command
			if fields := strings.Fields(command); len(fields) > 3 {
				command = strings.Replace(command, fields[3], "UID", 1)
			}
			if err != nil || out.String() != test.out || errOut.String() != test.errOut || command != test.command {
				t.Errorf("%v\n%s%s%s", err, out.String(), errOut.String(), command)
			}
		})
	}
}
