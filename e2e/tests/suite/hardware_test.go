package suite

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// smi runs nvidia-smi on a node.
func smi(ctx context.Context, on *lab.Node, args ...string) string {
	GinkgoHelper()
	out, err := on.Exec(ctx, append([]string{fakegpu.SMI(lab.GPUFolder)}, args...)...)
	Expect(err).NotTo(HaveOccurred(), string(out))
	return string(out)
}

// versions returns the driver versions that a node publishes.
func versions(ctx context.Context, on *lab.Node) []string {
	GinkgoHelper()
	seen := map[string]bool{}
	var list []string
	for _, slice := range pool(ctx, on) {
		for _, device := range slice.Spec.Devices {
			if v := device.Attributes["driverVersion"].VersionValue; v != nil && !seen[*v] {
				seen[*v] = true
				list = append(list, *v)
			}
		}
	}
	return list
}

var _ = Describe("The driver of a node", func() {
	It("may come after the agent: slices appear without a restart", func(ctx context.Context) {
		on := node("node2")
		before := entire(ctx, on).Devices
		Expect(fakegpu.RemoveDriver(on.GPUFolder())).To(Succeed())
		restored := false
		DeferCleanup(func() {
			if !restored {
				Expect(fakegpu.RestoreDriver(on.GPUFolder())).To(Succeed())
			}
		})
		crash(ctx, on)
		old := agent(ctx, on.Name())
		shown := func(ctx context.Context) map[string]gpu.Device { return fences(ctx, on).Devices }
		Eventually(ctx, shown).Should(BeEmpty())
		Expect(fakegpu.RestoreDriver(on.GPUFolder())).To(Succeed())
		restored = true
		Eventually(ctx, shown).Should(Equal(before))
		same := agent(ctx, on.Name())
		Expect(same.Name).To(Equal(old.Name))
		Expect(container(&same)).To(Equal(container(&old)), "the agent was restarted")

		r := newRoom(ctx)
		r.hold(ctx, "after", request("gpu", wholeClass, onL40S))
		Expect(r.seen(ctx, "after")).To(HaveLen(1))
	})

	It("may change its version: new pods get the new libraries", func(ctx context.Context) {
		on := node("node2")
		old := hardware(on).DriverVersion
		const other = "570.124.06"
		Expect(fakegpu.SetDriverVersion(ctx, on.GPUFolder(), other)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(fakegpu.SetDriverVersion(ctx, on.GPUFolder(), old)).To(Succeed())
			Eventually(ctx, func(ctx context.Context) []string { return versions(ctx, on) }).ShouldNot(ContainElement("570.124.6"))
		})
		Eventually(ctx, func(ctx context.Context) []string { return versions(ctx, on) }).Should(ConsistOf("570.124.6"))

		r := newRoom(ctx)
		r.claim(ctx, "new", request("gpu", wholeClass, onL40S))
		r.create(ctx, podOf("new", []string{"sh", "-c", "ls /usr/lib/x86_64-linux-gnu && probe"}, "new"))
		r.succeeded(ctx, "new")
		r.says(ctx, "new", SatisfyAll(
			ContainSubstring("libcuda.so."+other), Not(ContainSubstring("libcuda.so."+old)), ContainSubstring(`{"gpus":[{`)))
	})
})

var _ = Describe("An instance that an administrator made", func() {
	It("is never destroyed, its slices are withheld and the rest is used", func(ctx context.Context) {
		on := node("node1")
		g := hardware(on).GPUs[0]
		name := physical(on, g.UUID).Name()
		smi(ctx, on, "-i", "0", "-mig", "1")
		smi(ctx, on, "mig", "-i", "0", "-cgi", "9", "-C") // a 3g of four slices
		made := hardware(on).GPUs[0].Instances
		Expect(made).To(HaveLen(1))
		DeferCleanup(func(ctx context.Context) {
			gi := fmt.Sprint(made[0].ID)
			smi(ctx, on, "mig", "-i", "0", "-gi", gi, "-dci")
			smi(ctx, on, "mig", "-i", "0", "-gi", gi, "-dgi")
			smi(ctx, on, "-i", "0", "-mig", "0")
			Eventually(ctx, func(ctx context.Context) int64 { return counter(ctx, on, name, slot(made[0].Start)) }).Should(BeEquivalentTo(1))
		})
		Eventually(ctx, func(ctx context.Context) int64 { return counter(ctx, on, name, slot(made[0].Start)) }).Should(BeZero())

		r := newRoom(ctx)
		slice := request("slice", migClass, onParent(g.UUID), profile(threeSlices))
		r.hold(ctx, "beside", slice)
		r.claim(ctx, "over", slice)
		r.create(ctx, podOf("over", stay(), "over"))
		r.pending(ctx, "over")
		r.release(ctx, "over")
		crash(ctx, on)
		r.release(ctx, "beside")
		Expect(hardware(on).GPUs[0].Instances).To(Equal(made))
		Expect(strings.Count(smi(ctx, on, "mig", "-i", "0", "-lgi"), "MIG "+threeSlices)).To(Equal(1))
	})
})

// slot returns the name of the counter of a memory slice.
func slot(slice int) string { return fmt.Sprintf("memory-slice-%d", slice) }
