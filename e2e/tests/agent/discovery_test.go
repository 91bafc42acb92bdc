package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/prometheus"
)

// job is the job in the documentation, without its indentation.
var job = regexp.MustCompile("(?s)```yaml\n(- job_name: .*?)```")

// TestPrometheusDiscoversTheAgents: with the documented job, Prometheus' own discovery finds the agent among the pods that the installer renders, and
// no other pod.
func TestPrometheusDiscoversTheAgents(t *testing.T) {
	t.Parallel()
	const namespace = "discovery"
	p := newPrometheus(t, map[string]string{})
	pods := createRendered(t, namespace)
	readme, err := prometheus.File("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := job.FindSubmatch(readme)
	if text == nil {
		t.Fatal("the documentation has no job")
	}
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	config := "scrape_configs:\n" + strings.Replace(string(text[1]), "names: [tessera-system]", "names: ["+namespace+"]", 1)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	targets, err := p.Discover(t.Context(), file, shared.kubeconfig, pods)
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{{
		"__address__": "192.0.2.1:8080", "__metrics_path__": "/metrics", "__scheme__": "https", "__scrape_interval__": "1m", "__scrape_timeout__": "10s",
		"instance": "192.0.2.1:8080", "job": "tessera-node", "node": "worker",
	}}
	formats := cmpopts.IgnoreMapEntries(func(label, _ string) bool { return strings.Contains(label, "histograms_") })
	if diff := cmp.Diff(want, targets, formats); diff != "" {
		t.Errorf("targets among %d pods (-want +got):\n%s", pods, diff)
	}
}

// createRendered creates a pod of every workload that the installer renders by default, with the labels and the ports of its template, on the node
// "worker", and returns how many there are. The agent's has the address 192.0.2.1.
func createRendered(t *testing.T, namespace string) int {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	source, err := binaries.Source()
	must(err)
	text, err := os.ReadFile(filepath.Join(source, "installer", "render", "testdata", "default.yaml"))
	must(err)
	objects, err := cluster.Decode(text)
	must(err)
	_, err = shared.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	api, count := shared.client.CoreV1().Pods(namespace), 0
	for _, object := range objects {
		if object.GetKind() != "DaemonSet" && object.GetKind() != "Deployment" {
			continue
		}
		var workload appsv1.DaemonSet // a Deployment has the same template
		must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &workload))
		count++
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: workload.Name, Labels: workload.Spec.Template.Labels},
			Spec:       corev1.PodSpec{NodeName: "worker"},
		}
		for _, c := range workload.Spec.Template.Spec.Containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports})
		}
		made, err := api.Create(t.Context(), pod, metav1.CreateOptions{})
		must(err)
		made.Status.PodIP = "192.0.2.2"
		if workload.Name == "tessera-node" {
			made.Status.PodIP = "192.0.2.1"
		}
		made.Status.PodIPs = []corev1.PodIP{{IP: made.Status.PodIP}}
		_, err = api.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		must(err)
	}
	return count
}
