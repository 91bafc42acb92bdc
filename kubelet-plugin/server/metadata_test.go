package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// virtual prepares a GPU for a virtual machine.
type virtual struct{ claims }

func (virtual) Prepare(_ context.Context, claim prepare.Claim) ([]prepare.Answer, error) {
	return []prepare.Answer{{
		Prepared: prepare.Prepared{
			Result: prepare.Result{Request: "gpu", Pool: "pool", Device: "gpu-0000-17-00-0-vfio"}, IOMMUGroup: "31",
			Use: gpu.Device{GPU: "gpu-0000-17-00-0", Use: gpu.Use{Shape: gpu.VFIO}}, GPU: gpu.GPU{PCI: "0000:17:00.0", Product: "NVIDIA H100 80GB HBM3"},
		},
		CDIDevices: []string{"gpu.tessera.dev/claim=" + claim.UID + "-0"},
	}}, nil
}

// KubeVirt reads the address of a virtual machine's GPU from a file that comes into its pod by CDI.
func TestMetadataForVirtualMachines(t *testing.T) {
	c := config(t)
	object := claim("vm")
	object.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: c.Driver, Pool: "pool", Device: "gpu-0000-17-00-0-vfio"},
	}
	c.Client, c.Claims, c.MetadataDir = fake.NewClientset(object), virtual{}, folder(t)
	_, plugin := run(t, New(c))
	ref := &drapb.Claim{Namespace: "ns", Name: "vm", Uid: "uid-vm"}
	answer, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{ref}})
	if err != nil || answer.GetClaims()["uid-vm"].GetError() != "" {
		t.Fatalf("%v, error %v", answer, err)
	}
	ids := answer.GetClaims()["uid-vm"].GetDevices()[0].GetCdiDeviceIds()
	specs, err := filepath.Glob(filepath.Join(c.MetadataDir, "*metadata*"))
	if err != nil || len(specs) != 1 || len(ids) != 2 || ids[0] != "gpu.tessera.dev/claim=uid-vm-0" {
		t.Fatalf("specs %v, ids %v, error %v", specs, ids, err)
	}
	text, err := os.ReadFile(specs[0])
	if err != nil {
		t.Fatal(err)
	}
	var spec cdispec.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Devices) != 1 || spec.Kind+"="+spec.Devices[0].Name != ids[1] || len(spec.Devices[0].ContainerEdits.Mounts) == 0 {
		t.Fatalf("spec %s, ids %v", text, ids)
	}
	mount := spec.Devices[0].ContainerEdits.Mounts[0]
	if !strings.HasPrefix(mount.ContainerPath, "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/vm/gpu/") {
		t.Errorf("mounted at %s", mount.ContainerPath)
	}
	metadata, err := os.ReadFile(mount.HostPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"resource.kubernetes.io/pciBusID":{"string":"0000:17:00.0"}`, "iommuGroup", `"31"`} {
		if !strings.Contains(strings.NewReplacer(" ", "", "\n", "").Replace(string(metadata)), want) {
			t.Errorf("the metadata does not contain %s:\n%s", want, metadata)
		}
	}
	if _, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{ref}}); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(c.MetadataDir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, error %v", left, err)
	}
}

// A claim of a GPU with a driver needs no files: the driver tells.
func TestNoMetadataOtherwise(t *testing.T) {
	if metadataOf(prepare.Answer{Prepared: prepare.Prepared{Use: gpu.Device{Use: gpu.Use{Shape: gpu.Whole}}}}) != nil {
		t.Error("a whole GPU has metadata")
	}
	with := New(Config{MetadataDir: "/var/run/cdi"})
	if got, most := len(New(Config{}).options()), len(with.options()); got >= most {
		t.Errorf("%d options on a node with a driver, %d on one for virtual machines", got, most)
	}
}
