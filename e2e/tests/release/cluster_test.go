package release

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// testCluster installs a release from its registry on a bare node and upgrades it to the next one below a running pod, with the CLI of the next one. The node
// pulls the images.
func testCluster(t *testing.T, before, after published, registry http.Handler) {
	c := cluster.ForTest(t, "release", cluster.Config{Nodes: cluster.BareNodes()[:1]}, cluster.Bare)
	mirror(t, c, registry, after.registry)
	shell, err := c.NewShell(t.Context(), t.TempDir(), after.installCLI(t))
	if err != nil {
		t.Fatal(err)
	}
	step := func(line string) string {
		t.Helper()
		t.Log("$ ", line)
		output, err := shell.Run(t.Context(), line)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	install := func(r published) {
		t.Helper()
		t.Log("installing ", r.chart(t))
		if err := c.InstallRelease(t.Context(), r.chart(t)); err != nil {
			t.Fatal(err)
		}
		step("kubectl wait --for=create gpunode/node1 --timeout=5m")
		step("kubectl wait --for=jsonpath='{.status.agent.version}'=" + r.version + " gpunode/node1 --timeout=15m")
		step("tessera status --wait --timeout 15m")
		awaitImages(t, c, r)
	}

	install(before)
	step("kubectl apply -f " + filepath.Join(root(t), "e2e/tests/release/testdata/user.yaml"))
	step("kubectl wait --for=condition=Ready pod/user --timeout=5m")
	user := func() *corev1.Pod {
		t.Helper()
		pod, err := c.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "user", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	running := user()
	install(after)
	if now := user(); now.UID != running.UID || now.Status.ContainerStatuses[0].RestartCount != 0 || now.Status.Phase != corev1.PodRunning {
		t.Errorf("after the upgrade, the pod is %s, with %d restarts", now.Status.Phase, now.Status.ContainerStatuses[0].RestartCount)
	}
	if got := step("kubectl exec user -- nvidia-smi -L"); !strings.Contains(got, "GPU 0: NVIDIA H100") {
		t.Errorf("after the upgrade, the pod has the GPUs %q", got)
	}
	step("helm test tessera --namespace tessera-system")
}

// mirror serves the content of a registry on loopback to the nodes, which have it as the mirror of this address.
func mirror(t *testing.T, c *cluster.Cluster, content http.Handler, repository string) {
	t.Helper()
	listener, err := net.Listen("tcp", netip.AddrPortFrom(c.Host(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: content}} //nolint:gosec // the nodes of the lab have no reason to be slow
	server.Start()
	t.Cleanup(server.Close)
	address, _, _ := strings.Cut(repository, "/")
	script := fmt.Sprintf("mkdir -p /etc/containerd/certs.d/%[1]s && echo 'server = %[2]q' >/etc/containerd/certs.d/%[1]s/hosts.toml", address, server.URL)
	for _, node := range c.Nodes() {
		if _, err := node.Exec(t.Context(), "sh", "-c", script); err != nil {
			t.Fatal(err)
		}
	}
}

// installCLI unpacks the CLI of the release for this platform and returns its folder.
func (r published) installCLI(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	run(t, folder, "tar", "-xzf", filepath.Join(r.folder, "tessera_"+r.version+"_linux_"+runtime.GOARCH+".tar.gz"))
	return folder
}

// awaitImages waits until all pods of Tessera in the cluster run images of the release by digest, and each of its images runs. A driver's pod keeps the image of
// its init containers until the driver is upgraded.
func awaitImages(t *testing.T, c *cluster.Cluster, r published) {
	t.Helper()
	digests := map[string]bool{}
	for name, reference := range r.references(t) {
		if name != "charts/tessera" {
			_, digest, _ := strings.Cut(reference, "@")
			digests[r.registry+"/"+name+"@"+digest] = true
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	err := harness.Poll(ctx, func(ctx context.Context) error {
		pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name!=tessera-driver"})
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, pod := range pods.Items {
			for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				if strings.HasPrefix(container.Image, r.registry) {
					running[container.Image] = true
				}
			}
		}
		if !maps.Equal(running, digests) {
			return fmt.Errorf("the pods run %v, want %v", running, digests)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
