package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster/clustertest"
)

// secret is the value of all fields in which users may put secrets.
const secret = "hunter2"

// when is the time of every bundle.
var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// scene returns the everyday cluster with Tessera's objects and with secrets.
func scene(t *testing.T) *clustertest.Scene {
	t.Helper()
	s := clustertest.Everyday(t)
	for _, object := range s.Objects {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: secret, "foreign": secret, "gpu.tessera.dev/scheduler": "default"}
			pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "train:1", Command: []string{"sh", "-c"}, Args: []string{"login " + secret}, Env: []corev1.EnvVar{
				{Name: "TOKEN", Value: secret},
				{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "key"}}},
			}}}
		}
	}
	s.GPUNode("gpu-a")
	system := metav1.ObjectMeta{Namespace: "tessera-system", Labels: map[string]string{"app.kubernetes.io/name": "tessera-node", "app.kubernetes.io/part-of": "tessera"}}
	named := func(name string) metav1.ObjectMeta { m := *system.DeepCopy(); m.Name = name; return m }
	s.Add(
		&corev1.Pod{
			ObjectMeta: named("tessera-node-x"),
			Spec:       corev1.PodSpec{NodeName: "gpu-a", Containers: []corev1.Container{{Name: "agent", Args: []string{"--config=/etc/tessera/node.yaml"}, Env: []corev1.EnvVar{{Name: "LEVEL", Value: secret}}}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "agent", RestartCount: 2}}},
		},
		&corev1.Pod{
			ObjectMeta: named("tessera-node-y"), Spec: corev1.PodSpec{NodeName: "gpu-b", Containers: []corev1.Container{{Name: "agent", Command: []string{"agent", "--token", secret, "--proxy=http://u:" + secret + "@proxy:3128"}}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		},
		&appsv1.DaemonSet{ObjectMeta: named("tessera-node"), Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"vault.example.com/inject": secret}},
			Spec:       corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i", Env: []corev1.EnvVar{{Name: "A", Value: secret}}}}},
		}}},
		&corev1.ConfigMap{ObjectMeta: named("tessera-node-config"), Data: map[string]string{"node.yaml": "kind: NodeConfig"}},
		&corev1.ConfigMap{ObjectMeta: named("kube-root-ca.crt")},
		&corev1.Secret{ObjectMeta: named("pull"), StringData: map[string]string{"password": secret}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "without-claims"}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "monitors.gpu.tessera.dev"}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other.example.com"}},
		event("one", "Pod", "demo", "train-0"), event("two", "Pod", "other", "without-claims"),
		event("three", "ResourceClaim", "demo", "train"), event("four", "Pod", "tessera-system", "tessera-node-x"),
	)
	return s
}

func event(name, kind, namespace, about string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Message: "event " + name,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: about},
	}
}

// runner is a cluster.Runner that prints its arguments.
type runner struct{ err error }

func (r runner) Run(_ context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error) {
	return []byte(fmt.Sprintln(pod.Name, container, command)), r.err
}

// bundle writes the bundle and returns its files by name, without the folder, and the progress output.
func bundle(t *testing.T, s *clustertest.Scene, change func(*fake.Clientset), r cluster.Runner) (map[string]string, string) {
	t.Helper()
	c := s.Cluster()
	if change != nil {
		change(c.Client.(*fake.Clientset))
	}
	var out, progress bytes.Buffer
	b := collector{cluster: c, runner: r, logLines: 100, progress: &progress}
	if err := b.write(t.Context(), &out, "bundle", when); err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, progress.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(header.Name, "bundle/")
		if !ok || !header.ModTime.Equal(when) {
			t.Errorf("%s of %v", header.Name, header.ModTime)
		}
		files[name] = string(text)
	}
}

func TestBundle(t *testing.T) {
	files, progress := bundle(t, scene(t), nil, runner{})
	want := []string{
		"claims.txt", "clusterpolicies.yaml", "deviceclasses.yaml", "devicetaintrules.yaml", "doctor.json", "doctor.txt", "events.yaml",
		"gpunodes.yaml", "gpus.json", "gpus.txt", "nodes.yaml", "pods.yaml",
		"resourceclaims.yaml", "resourceclaimtemplates.yaml", "resourceslices.yaml",
		"tessera-system/configmaps.yaml", "tessera-system/daemonsets.yaml", "tessera-system/deployments.yaml",
		"tessera-system/gatherinfo/gpu-a-tessera-node-x.json",
		"tessera-system/logs/tessera-node-x/agent.log", "tessera-system/logs/tessera-node-x/agent.previous.log",
		"tessera-system/logs/tessera-node-y/agent.log",
		"tessera-system/metrics/gpu-a-tessera-node-x.txt", "tessera-system/pods.yaml",
		"validatingadmissionpolicies.yaml", "validatingadmissionpolicybindings.yaml", "versions.json",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, has := range map[string][]string{
		"gpus.txt":                 {"gpu-a   8 x NVIDIA H100 80GB HBM3", "demo/train-0"},
		"claims.txt":               {"NAMESPACE", "notebook-a"},
		"doctor.txt":               {"unhealthy", "memory slices 1 are withheld"},
		"doctor.json":              {`"kind": "DoctorReport"`},
		"gpunodes.yaml":            {"apiVersion: tessera.dev/v1alpha1", "kind: GPUNode", "name: gpu-a"},
		"pods.yaml":                {"apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n", "name: train-0", "foreign: <redacted>", "gpu.tessera.dev/scheduler: default", "value: <redacted>", "- <redacted>", "key: key", "image: train:1"},
		"resourceslices.yaml":      {"apiVersion: resource.k8s.io/v1", "kind: ResourceSlice", "gpu-0000-52-00-0-mig-19-0"},
		"events.yaml":              {"event one", "event three", "event four"},
		"tessera-system/pods.yaml": {"name: LEVEL\n        value: <redacted>", "- --config=/etc/tessera/node.yaml\n", "- --token\n", "--proxy=http://<redacted>@proxy:3128"},
		"tessera-system/metrics/gpu-a-tessera-node-x.txt":     {"tessera-node-x agent [tessera-node metrics]"},
		"tessera-system/gatherinfo/gpu-a-tessera-node-x.json": {"tessera-node-x agent [tessera-node gatherinfo --config=/etc/tessera/node.yaml]"},
		"tessera-system/configmaps.yaml":                      {"kind: NodeConfig"},
		"validatingadmissionpolicies.yaml":                    {"monitors.gpu.tessera.dev"},
		"versions.json":                                       {`"components"`},
	} {
		for _, text := range has {
			if !strings.Contains(files[name], text) {
				t.Errorf("%s: lacks %q:\n%.2000s", name, text, files[name])
			}
		}
	}
	for name, text := range files {
		for _, never := range []string{secret, "managedFields", "last-applied", "without-claims", "kube-root-ca", "other.example.com"} {
			if strings.Contains(text, never) {
				t.Errorf("%s: has %q", name, never)
			}
		}
	}
	if !strings.Contains(progress, "resourceslices               ") || strings.Contains(progress, "errors.txt") {
		t.Errorf("progress:\n%s", progress)
	}
}

// TestBundleWithoutPermissions removes one permission per case: the other files are written, and errors.txt has the error.
func TestBundleWithoutPermissions(t *testing.T) {
	whole, _ := bundle(t, scene(t), nil, runner{})
	for _, resource := range []string{"resourceslices", "resourceclaims", "resourceclaimtemplates", "deviceclasses", "pods", "nodes", "devicetaintrules", "events", "daemonsets", "configmaps", "validatingadmissionpolicies"} {
		files, progress := bundle(t, scene(t), func(c *fake.Clientset) {
			c.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
			})
		}, runner{})
		if !strings.Contains(files["errors.txt"], resource) || !strings.Contains(files["errors.txt"], "forbidden") || !strings.Contains(progress, "incomplete:\n") {
			t.Errorf("%s: errors.txt %q, progress %q", resource, files["errors.txt"], progress)
		}
		if missing := len(whole) - len(files) + 1; resource != "pods" && missing > 5 {
			t.Errorf("%s: %d files are missing", resource, missing)
		}
	}
	files, _ := bundle(t, scene(t), nil, runner{err: errors.New("exec is not allowed")})
	if want := "agent metrics: agent tessera-node-x on gpu-a: exec is not allowed\nnode hardware: agent tessera-node-x on gpu-a: exec is not allowed\n"; files["errors.txt"] != want {
		t.Errorf("errors.txt %q, want %q", files["errors.txt"], want)
	}
}

// Values that may be secrets are removed from arguments; the rest is kept.
func TestRedactSecrets(t *testing.T) {
	for argument, want := range map[string]string{
		"--v=4":                                    "--v=4",
		"--config=/etc/x.yaml":                     "--config=/etc/x.yaml",
		"--password=" + secret:                     "--password=<redacted>",
		"--registry-credentials=" + secret:         "--registry-credentials=<redacted>",
		"export API_TOKEN='a " + secret + "'; run": "export API_TOKEN=<redacted>; run",
		`{"apiKey": "` + secret + `", "b": 1}`:     `{"apiKey": <redacted>, "b": 1}`,
		"Authorization: Bearer " + secret:          "Authorization: <redacted> <redacted>",
		"https://user:" + secret + "@host/path":    "https://<redacted>@host/path",
		"-H X: Basic " + secret:                    "-H X: Basic <redacted>",
	} {
		arguments := []any{argument}
		if redactSecrets(arguments); arguments[0] != want {
			t.Errorf("%s: got %s, want %s", argument, arguments[0], want)
		}
	}
	arguments := []any{"--secret", secret, "--token", "--v", "4"}
	redactSecrets(arguments)
	if diff := cmp.Diff([]any{"--secret", "<redacted>", "--token", "--v", "4"}, arguments); diff != "" {
		t.Errorf("separate values (-want +got):\n%s", diff)
	}
}

func TestSave(t *testing.T) {
	c := scene(t).Cluster()
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	var progress bytes.Buffer
	b := func() *collector { return &collector{cluster: c, runner: runner{}, progress: &progress} }
	if err := b().save(t.Context(), file, "bundle", when); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 || !strings.HasSuffix(progress.String(), "Wrote "+file+".\n") {
		t.Errorf("%v, %v\n%s", info, err, progress.String())
	}
	if err := b().save(t.Context(), file, "bundle", when); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	half := filepath.Join(t.TempDir(), "half.tar.gz")
	if err := b().save(ended, half, "bundle", when); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an incomplete archive was kept: %v", err)
	}
}

// TestNamesStayInFolder writes files whose names come from a cluster.
func TestNamesStayInFolder(t *testing.T) {
	var out bytes.Buffer
	a := newArchive(&out, "bundle", when)
	if err := errors.Join(a.add("../../etc/passwd", nil), a.add("/a/./b", nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bundle/etc/passwd", "bundle/a/b"}, a.names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
