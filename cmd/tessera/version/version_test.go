package version

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
)

func agent(name, image string, ready bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultSystemNamespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/part-of": "tessera", "app.kubernetes.io/name": "tessera-node",
		}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: image}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", Ready: ready, ImageID: "sha256:" + name}}},
	}
}

func TestVersions(t *testing.T) {
	s := clustertest.New(t)
	s.Add(agent("a", "tessera/node:2", true), agent("b", "tessera/node:1", true), agent("c", "tessera/node:2", false))
	v, err := Load(t.Context(), s.Cluster())
	if err != nil {
		t.Fatal(err)
	}
	want := []Component{
		{Name: "tessera-node", Image: "tessera/node:1", ImageID: "sha256:b", Pods: 1, Ready: 1},
		{Name: "tessera-node", Image: "tessera/node:2", ImageID: "sha256:a", Pods: 2, Ready: 1},
	}
	if diff := cmp.Diff(want, v.Components); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
	v.Client, v.Server = "v1.2.3 go1.26", "v1.37.0"
	var out bytes.Buffer
	if err := writeVersions(&out, v, output.Flags{Format: output.Text, Color: "auto"}); err != nil {
		t.Fatal(err)
	}
	text := `tessera     v1.2.3 go1.26
kubernetes  v1.37.0

COMPONENT      IMAGE            READY
tessera-node   tessera/node:1   1/1
tessera-node   tessera/node:2   1/2
`
	if diff := cmp.Diff(text, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestPartialAnswer(t *testing.T) {
	c := clustertest.New(t).Cluster()
	v, err := Load(t.Context(), c)
	var out bytes.Buffer
	if err := errors.Join(err, writeVersions(&out, v, output.Flags{Format: output.Text, Color: "auto"})); err != nil || !strings.Contains(out.String(), "No Tessera pods in tessera-system.") {
		t.Errorf("without pods: %v\n%s", err, out.String())
	}
	c.Client.(*fake.Clientset).PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	})
	if v, err = Load(t.Context(), c); err == nil || v.Client == "" || v.Server == "" {
		t.Errorf("without permission: %+v, %v", v, err)
	}
}

// TestClient checks that --client needs no cluster.
func TestClient(t *testing.T) {
	flags := cluster.NewFlags()
	*flags.KubeConfig = "/nonexistent"
	cmd := Command(flags)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--client", "-o", "json"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), `"client": "`) || strings.Contains(out.String(), "server") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
