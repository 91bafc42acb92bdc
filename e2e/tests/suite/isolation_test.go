package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// doors is the probe's result for every device number of the fake driver.
type doors struct {
	// Granted and Denied are "major:minor" or "major:first-last".
	Granted, Denied []string
	// Other are the device numbers with another result.
	Other []struct{ Device, Error string }
}

// tried returns the device access of the pod's container.
func (r room) tried(ctx context.Context, name string) doors {
	GinkgoHelper()
	var d doors
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		text, err := r.log(ctx, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal([]byte(line(text, `{"granted":`)), &d)).To(Succeed(), text)
	}).Should(Succeed())
	return d
}

// line returns the first line of the text with the prefix.
func line(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}

// opens returns the single device numbers that were granted.
func (d doors) opens() []string {
	GinkgoHelper()
	var list []string
	for _, run := range d.Granted {
		var major, first, last int
		if n, _ := fmt.Sscanf(run, "%d:%d-%d", &major, &first, &last); n == 2 {
			last = first
		}
		for minor := first; minor <= last; minor++ {
			list = append(list, fmt.Sprintf("%d:%d", major, minor))
		}
	}
	return list
}

// controls are the device nodes of every container with a GPU, below /dev.
var controls = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}

// numbers returns the device numbers of nodes of the host.
func numbers(ctx context.Context, on *lab.Node, names ...string) []string {
	GinkgoHelper()
	var list []string
	for _, name := range names {
		out, err := on.Exec(ctx, "stat", "-c", "%Hr:%Lr", fakegpu.DevRoot(lab.GPUFolder)+"/dev/"+name)
		Expect(err).NotTo(HaveOccurred())
		list = append(list, strings.TrimSpace(string(out)))
	}
	return list
}

// capabilities returns the device numbers of a MIG device: of its GPU instance and its compute instance. The minors
// follow the driver's scheme: 3 of the system, 135 for each GPU, 9 for each instance.
func capabilities(ctx context.Context, on *lab.Node, minor int, device expect.Seen) []string {
	GinkgoHelper()
	gi, ci := ids(on, device)
	m := 3 + 135*minor + 9*gi
	major := capabilityMajor(ctx, on)
	return []string{fmt.Sprintf("%s:%d", major, m), fmt.Sprintf("%s:%d", major, m+1+ci)}
}

func capabilityMajor(ctx context.Context, on *lab.Node) string {
	GinkgoHelper()
	out, err := on.Exec(ctx, "cat", fakegpu.ProcRoot(lab.GPUFolder)+"/devices")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(out)) {
		if major, ok := strings.CutSuffix(strings.TrimSpace(line), " nvidia-caps"); ok {
			return major
		}
	}
	Fail("no nvidia-caps among the devices of " + on.Name())
	return ""
}

// ids returns the GPU instance and compute instance with the UUID in the hardware.
func ids(on *lab.Node, device expect.Seen) (gi, ci int) {
	GinkgoHelper()
	for _, g := range hardware(on).GPUs {
		for _, i := range g.Instances {
			for _, compute := range i.Computes {
				if compute.UUID == device.UUID {
					return i.ID, compute.ID
				}
			}
		}
	}
	Fail("the hardware has no MIG device " + device.UUID)
	return 0, 0
}

// physical returns the GPU with the UUID from the catalog.
func physical(on *lab.Node, uuid string) gpu.GPU {
	GinkgoHelper()
	machine, err := catalog.FindMachine(on.GPU())
	Expect(err).NotTo(HaveOccurred())
	model, err := machine.Node(on.Name())
	Expect(err).NotTo(HaveOccurred())
	for _, g := range model.GPUs {
		if g.UUID == uuid {
			return g
		}
	}
	Fail("no GPU " + uuid + " on " + on.Name())
	return gpu.GPU{}
}

// prober is a pod with permission to create device nodes that reports which of them it can open.
func prober(name string, claims ...string) *corev1.Pod {
	pod := podOf(name, []string{"sh", "-c", "probe isolation && exec probe --stay 3600"}, claims...)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"MKNOD"}},
	}
	return pod
}

// onlyOpens checks that the container can open exactly the given device numbers.
func (r room) onlyOpens(ctx context.Context, name string, wanted []string) {
	GinkgoHelper()
	d := r.tried(ctx, name)
	Expect(d.Other).To(BeEmpty(), "these numbers prove nothing")
	Expect(d.opens()).To(ConsistOf(wanted))
	Expect(d.Denied).NotTo(BeEmpty())
}

var _ = Describe("Isolation", func() {
	It("grants a whole GPU's nodes and no other, and shows that GPU alone", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "one", request("gpu", wholeClass, onH100))
		r.create(ctx, prober("one", "one"))
		on := node(r.running(ctx, "one").Spec.NodeName)

		devices := r.seen(ctx, "one")
		Expect(devices).To(HaveLen(1))
		Expect(devices[0].Profile).To(BeEmpty())
		minor := physical(on, devices[0].UUID).Minor
		r.onlyOpens(ctx, "one", numbers(ctx, on, append(controls, fmt.Sprintf("nvidia%d", minor))...))
	})

	It("grants a MIG device's capabilities and no sibling's, and shows exactly the device allocated", func(ctx context.Context) {
		r := newRoom(ctx)
		r.hold(ctx, "neighbour", request("slice", migClass, onH100, profile(oneSlice)))
		parent := r.parent(ctx, "neighbour")
		r.claim(ctx, "mine", request("slice", migClass, onParent(parent), profile(twoSlices)))
		r.create(ctx, prober("mine", "mine"))
		on := node(r.running(ctx, "mine").Spec.NodeName)

		devices := r.seen(ctx, "mine")
		Expect(devices).To(HaveLen(1))
		Expect(devices[0].Profile).To(Equal(twoSlices))
		Expect(devices[0].Parent).To(Equal(parent))
		g := physical(on, parent)
		r.isAsPromised(on, g, devices[0])
		wanted := numbers(ctx, on, append(controls, fmt.Sprintf("nvidia%d", g.Minor))...)
		r.onlyOpens(ctx, "mine", append(wanted, capabilities(ctx, on, g.Minor, devices[0])...))
	})

	It("grants nothing to a container without a claim", func(ctx context.Context) {
		r := newRoom(ctx)
		pod := prober("none")
		pod.Spec.Containers[0].Command = stay("isolation")
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: c.Nodes()[0].Name()}
		r.create(ctx, pod)
		r.running(ctx, "none")
		r.onlyOpens(ctx, "none", nil)
	})

	It("starts a container that has no C library", func(ctx context.Context) {
		r := newRoom(ctx)
		r.claim(ctx, "static", request("gpu", wholeClass))
		pod := podOf("static", []string{"busybox", "ls", "/dev"}, "static")
		pod.Spec.Containers[0].Image = cluster.BusyboxImage
		r.create(ctx, pod)
		r.succeeded(ctx, "static")
		r.says(ctx, "static", ContainSubstring("nvidiactl"))
	})
})

// isAsPromised checks that the MIG device in the container has the number of multiprocessors that the profile specifies
// for that GPU.
func (r room) isAsPromised(on *lab.Node, g gpu.GPU, device expect.Seen) {
	GinkgoHelper()
	for _, p := range g.Geometry.Profiles() {
		if p.Name == device.Profile {
			Expect(device.Multiprocessors).To(BeEquivalentTo(p.Multiprocessors))
			return
		}
	}
	Fail("no profile " + device.Profile + " on " + on.Name())
}

// parent returns the UUID of the GPU that carries the MIG device of a pod made by hold.
func (r room) parent(ctx context.Context, name string) string {
	GinkgoHelper()
	return r.allocated(ctx, name)[0].attribute("parentUUID")
}
