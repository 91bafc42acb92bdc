package cdi

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

var update = flag.Bool("update", false, "rewrite the golden specs")

func same(path string) driverroot.File { return driverroot.File{Host: path, Path: path} }

func node(name string, major, minor uint32) driverroot.Node {
	return driverroot.Node{Path: "/dev/" + name, Major: major, Minor: minor}
}

// driver is a small driver in a driver container.
func driver() driverroot.Driver {
	const root, lib, version = "/run/nvidia/driver", "/usr/lib/x86_64-linux-gnu", "580.65.06"
	file := func(path string) driverroot.File { return driverroot.File{Host: root + path, Path: path} }
	return driverroot.Driver{
		Version:   version,
		Libraries: []driverroot.File{file(lib + "/libcuda.so." + version), file(lib + "/libnvidia-ml.so." + version)},
		Links: []driverroot.Link{
			{Target: "libcuda.so.1", Path: lib + "/libcuda.so"},
			{Target: "libcuda.so." + version, Path: lib + "/libcuda.so.1"},
		},
		Folders:      []string{lib},
		Programs:     []driverroot.File{file("/usr/bin/nvidia-smi")},
		Firmware:     []driverroot.File{file("/lib/firmware/nvidia/" + version + "/gsp_ga10x.bin")},
		Settings:     []driverroot.File{{Host: root + "/usr/share/vulkan/icd.d/nvidia_icd.json", Path: "/etc/vulkan/icd.d/nvidia_icd.json"}},
		Sockets:      []driverroot.File{file("/run/nvidia-persistenced/socket")},
		Control:      []driverroot.Node{node("nvidiactl", 120, 255), node("nvidia-uvm", 121, 0)},
		Access:       driverroot.Access{GID: 44, Mode: 0o660},
		Majors:       map[string]uint32{"nvidia": 120, "nvidia-uvm": 121, "nvidia-caps": 122},
		Capabilities: map[string]uint32{"config": 1, "monitor": 2, "gpu1/gi13/access": 255, "gpu1/gi13/ci0/access": 256},
	}
}

// grants has one device of every shape, in one claim.
func grants() []grant {
	parent := gpu.GPU{PCI: "0000:3b:00.0", Index: 3, Minor: 1}
	device := func(name string, shape gpu.Shape) prepare.Prepared {
		return prepare.Prepared{
			Result: prepare.Result{Request: "r", Pool: "node1", Device: name},
			Use:    gpu.Device{GPU: parent.Name(), Use: gpu.Use{Shape: shape}},
			GPU:    parent,
		}
	}
	mig := device("gpu-0000-3b-00-0-mig-1g-10gb-6", gpu.MIG)
	mig.Instance = &gpu.Instance{GPU: parent.Name(), GI: 13, CI: 0, UUID: "MIG-1"}
	monitor := device("gpu-0000-3b-00-0-monitor", gpu.Monitor)
	monitor.Admin, monitor.Watched = true, []gpu.Instance{*mig.Instance, {GI: 14, CI: gpu.NoCompute}}
	share, private := device("gpu-0000-3b-00-0-mps", gpu.MPS), device("gpu-0000-3b-00-0-whole", gpu.Whole)
	share.Daemon = &prepare.Client{
		Name: "mps-gpu-0000-3b-00-0", ActiveThreadPercentage: 25, PinnedMemoryBytes: 20 << 30,
		Folders: prepare.DaemonFolders{Pipe: "/run/tessera/mps/mps-gpu-0000-3b-00-0/pipe", Shm: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/shm"},
	}
	private.Daemon = &prepare.Client{
		Name: "mps-0f5e-4", ActiveThreadPercentage: 50, PinnedMemoryBytes: 1 << 30,
		Folders: prepare.DaemonFolders{Pipe: "/run/tessera/mps/mps-0f5e-4/pipe", Shm: "/var/lib/kubelet/pods/2/volumes/kubernetes.io~empty-dir/shm"},
	}
	var grants []grant
	for _, p := range []prepare.Prepared{device("gpu-0000-3b-00-0", gpu.Whole), mig, monitor, share, private, device("gpu-0000-3b-00-0-timeshare", gpu.TimeShare)} {
		grants = append(grants, grant{Prepared: p, gpu: node("nvidia1", 120, 1)})
	}
	return grants
}

func golden(t *testing.T, name string, spec *cdispec.Spec) {
	t.Helper()
	got, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestCommon(t *testing.T) {
	spec, err := common(driver(), "/var/lib/kubelet/plugins/gpu.tessera.dev/bin/0123456789abcdef/tessera-hook")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "common.json", spec)
}

func TestClaim(t *testing.T) {
	const uid = "0f5e6e5a-7f2b-4d57-9b7e-2a3c0e1d4b5f"
	withExtras := grants()
	withExtras[0].Settings.Extras = params.ExtrasOf(params.RDMA, params.GDS)
	withExtras[1].Settings.Extras = params.ExtrasOf(params.GDS)
	spec, ids, err := claim(uid, driver(), withExtras, []extra{
		{params.GDS, driverroot.Extra{
			Nodes: []driverroot.File{same("/dev/nvidia-fs0"), same("/dev/nvidia-fs1")},
			Files: []driverroot.File{same("/run/udev"), same("/etc/cufile.json")},
		}},
		{params.RDMA, driverroot.Extra{Nodes: []driverroot.File{same("/dev/infiniband/uverbs0"), same("/dev/infiniband/rdma_cm")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "claim.json", spec)
	want := [][]string{
		{"gpu.tessera.dev/claim=" + uid + "-0-gpu-0000-3b-00-0", "gpu.tessera.dev/common=driver", "gpu.tessera.dev/claim=" + uid + "-gds", "gpu.tessera.dev/claim=" + uid + "-rdma"},
		{"gpu.tessera.dev/claim=" + uid + "-1-gpu-0000-3b-00-0-mig-1g-10gb-6", "gpu.tessera.dev/common=driver", "gpu.tessera.dev/claim=" + uid + "-gds"},
		{"gpu.tessera.dev/claim=" + uid + "-2-gpu-0000-3b-00-0-monitor", "gpu.tessera.dev/common=driver"},
		{"gpu.tessera.dev/claim=" + uid + "-3-gpu-0000-3b-00-0-mps", "gpu.tessera.dev/common=driver"},
		{"gpu.tessera.dev/claim=" + uid + "-4-gpu-0000-3b-00-0-whole", "gpu.tessera.dev/common=driver"},
		{"gpu.tessera.dev/claim=" + uid + "-5-gpu-0000-3b-00-0-timeshare", "gpu.tessera.dev/common=driver"},
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

func TestClaimRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*grant, *driverroot.Driver)
		want   string
		is     error
	}{
		"passthrough":         {func(g *grant, _ *driverroot.Driver) { g.Use.Shape = gpu.VFIO }, "vfio", gpu.ErrUnsupported},
		"no shape":            {func(g *grant, _ *driverroot.Driver) { g.Use.Shape = gpu.None }, "idle", gpu.ErrUnsupported},
		"no instance":         {func(g *grant, _ *driverroot.Driver) { g.Instance = nil }, "has no instance", nil},
		"no compute instance": {func(g *grant, _ *driverroot.Driver) { g.Instance = &gpu.Instance{GI: 13, CI: gpu.NoCompute} }, "has no instance", nil},
		"unknown instance":    {func(g *grant, _ *driverroot.Driver) { g.Instance = &gpu.Instance{GI: 99} }, "gpu1/gi99/access", nil},
		"no capabilities":     {func(_ *grant, d *driverroot.Driver) { delete(d.Majors, "nvidia-caps") }, "nvidia-caps", nil},
		"a name with a slash": {func(g *grant, _ *driverroot.Driver) { g.Device = "gpu/0" }, "gpu/0", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, d := grants()[1], driver()
			test.change(&g, &d)
			_, _, err := claim("uid", d, []grant{g}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("claim: got error %v, want one with %q", err, test.want)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("claim: got error %v, want %v", err, test.is)
			}
		})
	}
}

// A GPU of a driver without MIG is monitored with its device node only.
func TestMonitorWithoutMIG(t *testing.T) {
	d := driver()
	d.Capabilities = nil
	spec, _, err := claim("uid", d, grants()[2:], nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []*cdispec.DeviceNode{deviceNode(node("nvidia1", 120, 1), driver().Access)}
	if diff := cmp.Diff(want, spec.Devices[0].ContainerEdits.DeviceNodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// TestLimitsOfOneDaemon checks that containers of GPUs with different limits under one daemon get its folders and no limits, which the daemon applies: those
// of two devices would override each other in a container that gets both.
func TestLimitsOfOneDaemon(t *testing.T) {
	t.Parallel()
	var private prepare.Prepared
	for _, g := range grants() {
		if g.Daemon != nil && g.Use.Shape == gpu.Whole {
			private = g.Prepared
		}
	}
	first := client(private)
	other := private
	other.Daemon = &prepare.Client{Name: private.Daemon.Name, Folders: private.Daemon.Folders, PinnedMemoryBytes: 2 * private.Daemon.PinnedMemoryBytes}
	if diff := cmp.Diff(first, client(other)); diff != "" {
		t.Errorf("the edits depend on the limit of the device:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"}, first.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}
