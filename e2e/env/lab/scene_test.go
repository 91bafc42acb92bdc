package lab_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// scene is a running lab and a client for it.
type scene struct {
	lab    *lab.Lab
	node   *lab.Node
	client kubernetes.Interface
}

func newScene(t *testing.T, l *lab.Lab) scene {
	t.Helper()
	node, err := l.Node("node1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(l.Config())
	if err != nil {
		t.Fatal(err)
	}
	return scene{l, node, client}
}

// kubelet returns the address of the node's kubelet, which the host reaches through the lab's bridge.
func (s scene) kubelet(t *testing.T) string {
	t.Helper()
	node, err := s.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return net.JoinHostPort(address.Address, "10250")
		}
	}
	t.Fatal("node1 has no address")
	return ""
}

// lastWords is the last line of the log of every pod that completes.
const lastWords = "that was all"

// pod returns a pod of one container that runs a shell script once. All output goes to one stream: the runtime copies
// stdout and stderr independently, without ordering them.
func pod(name, script string) *corev1.Pod {
	script = "exec 2>&1\n" + script + "\necho " + lastWords
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: bundle.UserlandImage, Command: []string{"sh", "-c", script}}},
		},
	}
}

func (s scene) create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := s.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s scene) status(ctx context.Context, name string) (corev1.ContainerStatus, error) {
	p, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil || len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}, err
	}
	return p.Status.ContainerStatuses[0], nil
}

// running waits until the pod runs.
func (s scene) running(t *testing.T, name string) (status corev1.ContainerStatus) {
	t.Helper()
	s.await(t, name+" runs", func(ctx context.Context) (_ bool, err error) {
		status, err = s.status(ctx, name)
		return status.State.Running != nil, err
	})
	return status
}

// logsAtEnd waits until the pod has completed and returns its log.
func (s scene) logsAtEnd(t *testing.T, name string) string {
	t.Helper()
	s.await(t, name+" ends", func(ctx context.Context) (bool, error) {
		status, err := s.status(ctx, name)
		return status.State.Terminated != nil, err
	})
	var logs []byte
	// The runtime may report the exit of a container before it has written the whole log.
	s.await(t, name+" has said everything", func(ctx context.Context) (_ bool, err error) {
		logs, err = s.client.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		return strings.Contains(string(logs), lastWords), err
	})
	return string(logs)
}

// await waits until the condition is true. An error is retried: the API server or kubelet may be temporarily
// overloaded.
func (s scene) await(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	err := harness.PollEvery(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		holds, err := condition(ctx)
		if err == nil && !holds {
			err = errors.New("it does not hold")
		}
		return err
	})
	if err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// folderOf returns the host's path of a node's disk.
func folderOf(node *lab.Node) string { return filepath.Dir(node.GPUFolder()) }

// userland builds the image of the pods.
func userland(t *testing.T) string {
	t.Helper()
	base, err := bundle.NewBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "userland.tar")
	if err := oci.WriteArchive(archive, base.Image(bundle.UserlandImage)); err != nil {
		t.Fatal(err)
	}
	return archive
}

// down stops a lab even if the test's own context has ended.
func down(t *testing.T, folder string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := lab.Down(ctx, folder); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Error(err)
	}
}

// traces lists everything that a lab could leave on a host: processes, mounts, links and control groups. Those of other
// labs are not included.
func traces(t *testing.T, folder, id string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, folder) {
			found = append(found, "mount "+point)
		}
	}
	for _, pattern := range []string{
		"/sys/class/net/tl" + id,
		"/sys/fs/cgroup/tessera-lab-" + id, "/sys/fs/cgroup/*/tessera-lab-" + id,
		"/sys/fs/cgroup/k8s.io", "/sys/fs/cgroup/*/k8s.io", "/sys/fs/cgroup/kubepods*", "/sys/fs/cgroup/*/kubepods*",
	} {
		found = append(found, glob(t, pattern)...)
	}
	for _, process := range glob(t, "/proc/[0-9]*/cmdline") {
		if text, err := os.ReadFile(process); err == nil && strings.Contains(string(text), folder) {
			found = append(found, "process "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
