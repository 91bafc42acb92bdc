package lab_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/host"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// TestLab starts a lab of one node and uses everything that the suites use. It requires root and built programs, which
// `make lab` provides.
func TestLab(t *testing.T) {
	needLab(t)
	folder, err := os.MkdirTemp("/run", "lab-test-") // short, since the paths of kubelet's sockets are long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t, folder) }) // also after a failure
	foreign := traces(t, folder, "none")
	l, err := lab.Start(t.Context(), lab.Config{
		Folder: folder, Hardware: hardware{}, Images: []string{userland(t)}, Progress: t.Output(),
		Nodes: []lab.NodeSpec{{Name: "node1", GPU: "two of them", Files: map[string]string{"/etc/os-release": "ID=other\n"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, l)
	t.Run("pod reaches the API server as itself", s.podReachesAPIServer)
	t.Run("CDI device is injected", s.deviceIsInjected)
	t.Run("identities are kept apart", s.identitiesAreKeptApart)
	t.Run("pod outlives its kubelet and containerd", s.podOutlivesDaemons)
	t.Run("partition cuts the node off", s.partitionCutsOff)
	t.Run("API server goes away and comes back", s.apiServerGoesAway)
	t.Run("reboot keeps the disk only", s.rebootKeepsDisk)
	t.Run("killed node starts again", s.killedNodeStarts)
	t.Run("second lab beside the first", s.secondLab)
	t.Run("nothing is left after a crash", func(t *testing.T) {
		for _, record := range []string{"machines/node1/pid.json", "machines/control-plane/pid.json"} { // simulates lost records
			if err := os.Remove(filepath.Join(folder, record)); err != nil {
				t.Error(err)
			}
		}
		down(t, folder)
		down(t, folder) // a second call has no effect
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("%s is still there", folder)
		}
		if diff := cmp.Diff(foreign, traces(t, folder, l.ID())); diff != "" {
			t.Errorf("what the lab changed on the host:\n%s", diff)
		}
	})
}

// needLab skips the test if a lab cannot run here.
func needLab(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for namespaces and mounts")
	}
	if missing := host.Missing(host.Needs()); len(missing) > 0 {
		t.Skipf("needs host packages: %s; `make lab` installs them", strings.Join(missing, " "))
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	source, err := binaries.Source()
	if err != nil {
		t.Fatal(err)
	}
	builder := binaries.Builder{Modules: filepath.Join(source, "e2e", "env", "lab", "modules"), Cache: cache, Progress: t.Output()}
	ready, err := builder.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !ready {
		t.Skip("needs built Kubernetes programs, which take minutes; `make lab` builds them")
	}
}

// hardware creates marker files instead of GPUs.
type hardware struct{}

func (hardware) Install(_ context.Context, node lab.NodeSpec, folder string) error {
	return os.WriteFile(filepath.Join(folder, "installed"), []byte(node.Name+": "+node.GPU), 0o644)
}

func (hardware) Reboot(_ context.Context, folder string) error {
	mark, err := os.OpenFile(filepath.Join(folder, "reboots"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = mark.WriteString("x")
	return errors.Join(err, mark.Close())
}

func (hardware) Boot(_ context.Context, folder, bootID string) error {
	return os.WriteFile(filepath.Join(folder, "boot"), []byte(bootID), 0o644)
}

func (s scene) podReachesAPIServer(t *testing.T) {
	// A plain HTTP request to the TLS port gets an error response that ends the connection: this suffices to show that
	// the Service's address leads to the API server.
	s.create(t, pod("client", `printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 300 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token`))
	logs := s.logsAtEnd(t, "client")
	if !strings.Contains(logs, "HTTPS server") || !strings.Contains(logs, "token") {
		t.Errorf("the pod saw:\n%s", logs)
	}
}

func (s scene) deviceIsInjected(t *testing.T) {
	spec := `{"cdiVersion": "0.6.0", "kind": "lab.test/device", "devices": [{"name": "one", "containerEdits": {
		"env": ["LAB_DEVICE=one"], "deviceNodes": [{"path": "/dev/lab0", "type": "c", "major": 120, "minor": 7}]}}]}`
	if _, err := s.node.Exec(t.Context(), "sh", "-c", "mkdir -p /var/run/cdi && cat > /var/run/cdi/lab.json <<'E'\n"+spec+"\nE"); err != nil {
		t.Fatal(err)
	}
	plugin := servePlugin(t, filepath.Join(folderOf(s.node), "var/lib/kubelet/device-plugins"))
	s.await(t, "node1 offers the device", func(ctx context.Context) (bool, error) {
		node, err := s.client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		quantity := node.Status.Allocatable[plugin.resource]
		return quantity.Value() == 1, nil
	})
	p := pod("device", `echo "LAB_DEVICE=$LAB_DEVICE"; cat /dev/lab0; mknod /tmp/other c 121 9; cat /tmp/other`)
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{plugin.resource: plugin.one}
	s.create(t, p)
	logs := s.logsAtEnd(t, "device")
	for _, want := range []string{"LAB_DEVICE=one", "/dev/lab0': No such device or address", "/tmp/other': Operation not permitted"} { // granted, and not granted
		if !strings.Contains(logs, want) {
			t.Errorf("the container lacks %q and says:\n%s", want, logs)
		}
	}
}

func (s scene) identitiesAreKeptApart(t *testing.T) {
	config := s.lab.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:node2", Groups: []string{"system:nodes"}}
	other, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "lab.test", NodeName: new("node1"), Pool: resourceapi.ResourcePool{Name: "p", ResourceSliceCount: 1},
		},
	}
	if _, err := other.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("node2 wrote a slice of node1: %v", err)
	}
	stranger := http.Client{Timeout: harness.Patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a stranger trusts anybody
	response, err := stranger.Get("https://" + s.kubelet(t) + "/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing was sent
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("kubelet answers a stranger: %s", response.Status)
	}
}

func (s scene) podOutlivesDaemons(t *testing.T) {
	s.create(t, pod("lasting", "echo up; exec sleep 1000000"))
	began := s.running(t, "lasting").ContainerID
	for _, service := range []string{lab.Kubelet, lab.Containerd} {
		if err := s.node.KillService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
		if err := s.node.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.node.RestartService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	output, err := s.node.Exec(t.Context(), "ctr", "--namespace", "k8s.io", "tasks", "list", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	if id := strings.TrimPrefix(began, "containerd://"); !slices.Contains(strings.Fields(string(output)), id) {
		t.Errorf("container %s is gone; left are %s", id, output)
	}
}

func (s scene) partitionCutsOff(t *testing.T) {
	kubelet := s.kubelet(t)
	reach := func() error {
		conn, err := net.DialTimeout("tcp", kubelet, 2*time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	s.await(t, "the node is reached", func(context.Context) (bool, error) { return reach() == nil, nil }) // kubelet was restarted and may not listen yet
	if err := s.node.Partition(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reach() == nil {
		t.Error("the node is reached without a cable")
	}
	if err := s.node.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the node is reached again", func(context.Context) (bool, error) { return reach() == nil, nil })
}

func (s scene) apiServerGoesAway(t *testing.T) {
	plane := s.lab.ControlPlane()
	if err := plane.StopService(t.Context(), lab.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Discovery().ServerVersion(); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := plane.StartService(t.Context(), lab.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
}

func (s scene) rebootKeepsDisk(t *testing.T) {
	script := "for d in /run /dev /tmp /etc /var/lib/kubelet /run/fakegpu; do echo x > $d/mark; done; cat /proc/sys/kernel/random/boot_id"
	first, err := s.node.Exec(t.Context(), "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept, err := s.node.Exec(t.Context(), "sh", "-c", "cd /; ls run/mark dev/mark tmp/mark etc/mark var/lib/kubelet/mark run/fakegpu/mark 2>/dev/null; true")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"etc/mark", "run/fakegpu/mark", "var/lib/kubelet/mark"}, strings.Fields(string(kept))); diff != "" {
		t.Errorf("what a reboot kept:\n%s", diff)
	}
	second, err := s.node.Exec(t.Context(), "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if string(first) == string(second) {
		t.Errorf("the boot id is still %s", second)
	}
	if told, err := os.ReadFile(filepath.Join(s.node.GPUFolder(), "boot")); err != nil || string(told) != strings.TrimSpace(string(second)) {
		t.Errorf("the hardware was told boot %s, %v: it is %s", told, err, second)
	}
	if release, err := s.node.Exec(t.Context(), "cat", "/etc/os-release"); err != nil || string(release) != "ID=other\n" {
		t.Errorf("the node's own file holds %s, %v", release, err)
	}
	marks, err := os.ReadFile(filepath.Join(s.node.GPUFolder(), "reboots"))
	if err != nil || string(marks) != "x" {
		t.Errorf("the hardware was rebooted %d times, %v", len(marks), err)
	}
	if _, err := os.Stat("/etc/mark"); err == nil {
		t.Error("the node wrote to the host's /etc")
	}
	s.await(t, "the pod runs again", func(ctx context.Context) (bool, error) {
		status, err := s.status(ctx, "lasting")
		return err == nil && status.RestartCount > 0 && status.State.Running != nil, err
	})
}

func (s scene) killedNodeStarts(t *testing.T) {
	if err := s.node.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.node.Exec(t.Context(), "true"); !errors.Is(err, machine.ErrDown) {
		t.Errorf("a killed node runs programs: %v", err)
	}
	if err := s.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.node.Start(t.Context()); err != nil {
		t.Errorf("starting a node that runs: %v", err)
	}
}

func (s scene) secondLab(t *testing.T) {
	folder, err := os.MkdirTemp("/run", "lab-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { down(t, folder) })
	second, err := lab.Start(t.Context(), lab.Config{Folder: folder, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if second.Config().Host == s.lab.Config().Host {
		t.Errorf("both labs serve at %s", second.Config().Host)
	}
	if _, err := lab.Start(t.Context(), lab.Config{Folder: folder}); !errors.Is(err, lab.ErrExists) {
		t.Errorf("a third lab in the second's folder: %v", err)
	}
	if _, err := s.client.Discovery().ServerVersion(); err != nil {
		t.Errorf("the first lab beside the second: %v", err)
	}
}
