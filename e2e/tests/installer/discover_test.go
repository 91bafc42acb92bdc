package installer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/discovery"
	"github.com/tessera-gpu/tessera/installer/host"
)

// looked is a host with its own files.
func looked(t *testing.T, files map[string]string) discovery.Host {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return discovery.Host{
		Roots:            host.Roots{Host: root, Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Dev: root, Driver: "/run/nvidia/driver"},
		ContainerdConfig: "/etc/containerd/config.toml", CDI: "/var/run/cdi",
	}
}

// TestDiscovery lets the discovery write the hardware of two nodes to a real API server, each with its pod's permissions only, next to the installer's
// part of the same object.
func TestDiscovery(t *testing.T) {
	s := newSite(t)
	s.awaitPolicies(t)
	node, err := s.plane.Client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.2.1"
	if node, err = s.plane.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	system := map[string]string{
		"etc/os-release":            "ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"",
		"proc/sys/kernel/osrelease": "6.8.0-79-generic", "proc/sys/kernel/random/boot_id": "b1",
	}
	at := looked(t, system)
	discover := s.discoverer(t, "node1", at)
	begin := s.discoverer(t, "node2", looked(t, system))

	// No node has a GPU: nothing is created.
	for name, d := range map[string]*discovery.Discovery{"node1": discover, "node2": begin} {
		if err := d.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.gpuNode(t, name); !apierrors.IsNotFound(err) {
			t.Errorf("%s, which has no GPU: error %v", name, err)
		}
	}

	// One is put in.
	for name, text := range map[string]string{"vendor": "0x10de", "class": "0x030200", "device": "0x2330"} {
		path := filepath.Join(at.Roots.Sys, "bus/pci/devices/0000:17:00.0", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := discover.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.HardwareStatus{
		BootID: "b1", GPUs: 1, PCI: []string{"2330"}, Mode: "compute", Kernel: "6.8.0-79-generic", OS: "ubuntu24.04", OSName: "Ubuntu 24.04 LTS",
		Architecture: runtime.GOARCH, Runtime: "containerd://2.2.1", CDI: true,
	}
	made, err := s.gpuNode(t, "node1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, made.Status.Hardware); diff != "" {
		t.Errorf("hardware (-want +got):\n%s", diff)
	}
	if owners := made.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != node.UID {
		t.Errorf("owners: %+v", owners)
	}

	// The installer writes its part; the driver is loaded. Both parts are kept, and unchanged values are not written again.
	if err := s.administrator().apply(t.Context(), gpuNodes, "", "node1", gpuNode("node1", "status: {phase: DriverReady}"), "status"); err != nil {
		t.Fatal(err)
	}
	loaded := filepath.Join(at.Roots.Proc, "driver/nvidia/version")
	if err := os.MkdirAll(filepath.Dir(loaded), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loaded, []byte("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := discover.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed, err := s.gpuNode(t, "node1")
	if err != nil || changed.Status.Hardware.LoadedDriver != "580.95.05" || changed.Status.Phase != v1alpha1.PhaseDriverReady {
		t.Errorf("status %+v, error %v", changed.Status, err)
	}
	for _, d := range []*discovery.Discovery{discover, s.discoverer(t, "node1", at)} {
		if err := d.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if same, err := s.gpuNode(t, "node1"); err != nil || same.ResourceVersion != changed.ResourceVersion {
		t.Errorf("version %s, error %v: nothing has changed since %s", same.ResourceVersion, err, changed.ResourceVersion)
	}
}

// discoverer returns the discovery of a node with the rights of its pod.
func (s *site) discoverer(t *testing.T, node string, at discovery.Host) *discovery.Discovery {
	t.Helper()
	access := rest.AnonymousClientConfig(s.config)
	access.BearerToken = s.as(t, discovery.Manager, node).token
	known, gpuNodes, err := discovery.Connect(access)
	if err != nil {
		t.Fatal(err)
	}
	return discovery.New(node, at, known, gpuNodes)
}

// administrator writes as the installer would.
func (s *site) administrator() identity {
	return identity{Interface: s.plane.Client, dynamic: dynamic.NewForConfigOrDie(s.config), account: "tessera-installer"}
}

func (s *site) gpuNode(t *testing.T, name string) (*v1alpha1.GPUNode, error) {
	t.Helper()
	object, err := dynamic.NewForConfigOrDie(s.config).Resource(gpuNodes).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var node v1alpha1.GPUNode
	if err := k8sruntime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &node); err != nil {
		text, _ := json.Marshal(object)
		t.Fatalf("%v: %s", err, text)
	}
	return &node, nil
}
