package suite

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// newAdminRoom creates a room in which claims may have admin access.
func newAdminRoom(ctx context.Context) room {
	GinkgoHelper()
	r := newRoom(ctx)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, resourceapi.DRAAdminNamespaceLabelKey)
	_, err := r.Client.CoreV1().Namespaces().Patch(ctx, r.namespace, types.MergePatchType, label, metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
	return r
}

// watching gives the request admin access.
func watching(r resourceapi.DeviceRequest) resourceapi.DeviceRequest {
	r.Exactly.AdminAccess = ptr.To(true)
	return r
}

// everyGPU requests the monitors of all GPUs of node1.
func everyGPU() resourceapi.DeviceRequest {
	r := watching(request("gpus", monitorClass, onH100))
	r.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	return r
}

// fill lets pods use every GPU of node1, in all shapes, and returns their names.
func (r room) fill(ctx context.Context, on *lab.Node) []string {
	GinkgoHelper()
	gpus := hardware(on).GPUs
	requests := map[string]resourceapi.DeviceRequest{
		"slice": request("slice", migClass, onParent(gpus[0].UUID), profile(twoSlices)),
		"turns": share(timeShareClass, gpus[1].UUID, "10Gi", ""), "beside": third(gpus[2].UUID),
	}
	for i := 3; i < len(gpus); i++ {
		requests[fmt.Sprint("whole-", i)] = request("gpu", wholeClass, onGPU(gpus[i].UUID))
	}
	var names []string
	for name, wish := range requests {
		r.claim(ctx, name, wish)
		r.create(ctx, podOf(name, stay(), name))
		names = append(names, name)
	}
	for _, name := range names {
		r.running(ctx, name)
	}
	return names
}

var _ = Describe("An administrator's pod", func() {
	It("watches every GPU while all are in use, and takes nothing from anybody", func(ctx context.Context) {
		tenants, admin, on := newRoom(ctx), newAdminRoom(ctx), node("node1")
		names := tenants.fill(ctx, on)
		containers := map[string]string{}
		for _, name := range names {
			containers[name] = container(tenants.running(ctx, name))
		}
		before := count(ctx, on)

		admin.claim(ctx, "watcher", everyGPU())
		admin.create(ctx, prober("watcher", "watcher"))
		admin.running(ctx, "watcher")
		wanted := append(numbers(ctx, on, controls...), capabilityMajor(ctx, on)+":2")
		for i := range hardware(on).GPUs {
			wanted = append(wanted, numbers(ctx, on, fmt.Sprintf("nvidia%d", i))...)
		}
		slice := tenants.seen(ctx, "slice")[0]
		wanted = append(wanted, capabilities(ctx, on, physical(on, slice.Parent).Minor, slice)...)
		admin.onlyOpens(ctx, "watcher", wanted)
		seen := admin.seen(ctx, "watcher")
		Expect(seen).To(HaveLen(len(hardware(on).GPUs)))
		Expect(seen).To(ContainElement(HaveField("UUID", slice.UUID)), "the tenant's MIG device is watched, too")

		admin.release(ctx, "watcher")
		Eventually(ctx, func(ctx context.Context) ledger { return count(ctx, on) }).Should(Equal(before))
		for _, name := range names {
			Expect(container(tenants.running(ctx, name))).To(Equal(containers[name]), name)
			tenants.release(ctx, name)
		}
		nothingLeft(ctx)
	})

	It("is refused without adminAccess, and outside of the administrators' namespaces", func(ctx context.Context) {
		r, admin := newRoom(ctx), newAdminRoom(ctx)
		const advice = "must have adminAccess: true"
		Expect(admin.tryClaim(ctx, "plain", request("gpu", monitorClass))).To(MatchError(ContainSubstring(advice)))
		Expect(r.tryClaim(ctx, "plain", request("gpu", monitorClass))).To(MatchError(ContainSubstring(advice)))
		Expect(r.tryClaim(ctx, "monitor", everyGPU())).To(MatchError(ContainSubstring("label on the containing namespace")))
		Expect(r.tryClaim(ctx, "slice", watching(request("slice", migClass)))).To(MatchError(ContainSubstring("label on the containing namespace")))
	})
})
