package cdi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// sandbox is a host without a driver, whose GPUs are for virtual machines.
func sandbox(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes device nodes")
	}
	top := t.TempDir()
	h := &host{t: t, Config: Config{
		Dir: filepath.Join(top, "var/run/cdi"), Roots: driverroot.Roots{Host: top, Proc: top + "/proc", Sys: top + "/sys"}, Leads: func() bool { return true },
	}}
	h.node("vfio/vfio", 10, 196)
	h.node("vfio/31", 240, 0)
	return h
}

func virtual(device, group string) prepare.Prepared {
	return prepare.Prepared{
		Result: prepare.Result{Request: "r", Pool: "p", Device: device}, Use: gpu.Device{GPU: device, Use: gpu.Use{Shape: gpu.VFIO}}, IOMMUGroup: group,
	}
}

func TestPassthrough(t *testing.T) {
	h := sandbox(t)
	h.node("vfio/8", 240, 1)
	ids, err := New(h.Config).Write("uid", []prepare.Prepared{virtual("gpu-a-vfio", "31"), virtual("gpu-b-vfio", "8")})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"gpu.tessera.dev/claim=uid-0-gpu-a-vfio"}, {"gpu.tessera.dev/claim=uid-1-gpu-b-vfio"}}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
	text, err := os.ReadFile(filepath.Join(h.Dir, claimFile("uid")))
	if err != nil {
		t.Fatal(err)
	}
	var spec cdispec.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	nodes := func(group string) cdispec.ContainerEdits {
		return cdispec.ContainerEdits{DeviceNodes: []*cdispec.DeviceNode{
			{Path: "/dev/vfio/vfio", HostPath: "/dev/vfio/vfio"}, {Path: "/dev/vfio/" + group, HostPath: "/dev/vfio/" + group},
		}}
	}
	devices := []cdispec.Device{{Name: "uid-0-gpu-a-vfio", ContainerEdits: nodes("31")}, {Name: "uid-1-gpu-b-vfio", ContainerEdits: nodes("8")}}
	if diff := cmp.Diff(devices, spec.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	// Without a driver the common spec is not written and not needed.
	if diff := cmp.Diff([]string{claimFile("uid")}, h.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := New(h.Config).Refresh(); !errors.Is(err, gpu.ErrNoDriver) {
		t.Errorf("refresh without a driver: %v", err)
	}
	if err := New(h.Config).Remove("uid"); err != nil || len(h.files()) != 0 {
		t.Errorf("files %v, error %v", h.files(), err)
	}
}

func TestPassthroughRefuses(t *testing.T) {
	h := sandbox(t)
	h.write("/dev/vfio/9", "no device")
	mixed := virtual("gpu-b", "31")
	mixed.Use.Shape = gpu.Whole
	tests := map[string]struct {
		devices []prepare.Prepared
		is      error
	}{
		"no such group":            {[]prepare.Prepared{virtual("gpu-a-vfio", "7")}, fs.ErrNotExist},
		"not bound":                {[]prepare.Prepared{virtual("gpu-a-vfio", "")}, gpu.ErrUnsupported},
		"with a GPU of the driver": {[]prepare.Prepared{virtual("gpu-a-vfio", "31"), mixed}, gpu.ErrUnsupported},
		"no device":                {[]prepare.Prepared{virtual("gpu-a-vfio", "9")}, nil},
	}
	for name, test := range tests {
		if ids, err := New(h.Config).Write("uid", test.devices); err == nil || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: ids %v, error %v", name, ids, err)
		}
	}
	if entries, err := os.ReadDir(h.Dir); err == nil && len(entries) > 0 {
		t.Errorf("a spec was written: %v", entries)
	}
}
