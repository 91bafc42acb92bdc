package vm

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// passthroughConfig is a NodeConfig for virtual machines. The functions are real: only their vendor and class are covered in the node's sysfs, which a container
// sees below the node's root and not in its own sysfs.
const passthroughConfig = `
apiVersion: tessera.dev/v1alpha1
kind: NodeConfig
shapes: [vfio]
roots: {host: /host, sys: /host/sys}
`

// passthrough has the specs of GPUs in the shape vfio. The functions of the node are virtio's random number generators, behind an emulated IOMMU of Intel:
// vfio-pci, sysfs and the IOMMU groups are the kernel's (Documentation/driver-api/vfio.rst).
func passthrough() {
	BeforeAll(func(ctx context.Context) {
		maps := c.Client.CoreV1().ConfigMaps(cluster.Namespace)
		config, err := maps.Get(ctx, "tessera-node-config", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		before := config.Data["node.yaml"]
		reconfigure := func(ctx context.Context, text, shape string) {
			GinkgoHelper()
			config, err := maps.Get(ctx, "tessera-node-config", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			config.Data["node.yaml"] = text
			_, err = maps.Update(ctx, config, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func(ctx context.Context) (int, error) {
				list, err := c.Client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
				return len(list.Items), err
			}).WithTimeout(5*time.Minute).Should(BeZero(), "claims of devices that the node will not have")
			Expect(c.Client.CoreV1().Pods(cluster.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
			Eventually(ctx, published).WithTimeout(10 * time.Minute).Should(ContainElement(HaveSuffix("-" + shape)))
		}
		DeferCleanup(func(ctx context.Context) { reconfigure(ctx, before, "mps") })
		reconfigure(ctx, passthroughConfig, "vfio")
	}, atMost)

	It("is published with its IOMMU group", func(ctx context.Context) {
		for _, address := range functions {
			group := shell(ctx, "basename $(readlink /sys/bus/pci/devices/"+address+"/iommu_group)")
			Expect(groups(ctx)).To(HaveKeyWithValue(address, group))
			Expect(shell(ctx, "ls /sys/kernel/iommu_groups/"+group+"/devices")).To(Equal(address), "QEMU's root ports isolate their functions")
		}
	}, atMost)

	It("is bound to vfio-pci while a pod has it, and returned to its driver", func(ctx context.Context) {
		for _, address := range functions {
			Expect(shell(ctx, driverOf(address))).To(Equal("virtio-pci"))
		}
		apply(ctx, podWith("monitor", "vfio.tessera.dev", "", "probe vfio && exec sleep 3600"))
		running(ctx, "monitor", 0)
		var seen struct {
			Group, Device, Reads string
			Viable, PCI, Reset   bool
			Regions, Interrupts  int
		}
		Expect(json.Unmarshal([]byte(logged(ctx, "monitor", `{"group"`)), &seen)).To(Succeed())
		Expect(functions).To(ContainElement(seen.Device))
		Expect(seen.Group).To(Equal(groups(ctx)[seen.Device]))
		Expect(seen.Viable).To(BeTrue())
		Expect(seen.PCI).To(BeTrue())
		Expect(seen.Reset).To(BeTrue())
		Expect(seen.Reads).To(Equal("1af41044"), "the function's own configuration space: vendor and device of virtio's generator")
		Expect(shell(ctx, driverOf(seen.Device))).To(Equal("vfio-pci"))
		for _, address := range functions {
			if address != seen.Device {
				Expect(shell(ctx, driverOf(address))).To(Equal("virtio-pci"), "the other GPU is not changed")
			}
		}

		By("keeping the group open on the node while the pod goes")
		shell(ctx, "setsid sh -c 'exec 3<>/dev/vfio/"+seen.Group+"; exec sleep 600' >/dev/null 2>&1 & echo $! >/run/holder")
		DeferCleanup(shell, "kill $(cat /run/holder) || true")
		Expect(c.Client.CoreV1().Pods("default").Delete(ctx, "monitor", metav1.DeleteOptions{})).To(Succeed())
		Eventually(ctx, printed("journalctl --unit kubelet --output cat --since -5m | grep -o 'open .*/dev/vfio/"+seen.Group+": in use' | head -n 1")).
			WithTimeout(5*time.Minute).ShouldNot(BeEmpty(), "the reason in the log of kubelet")
		Expect(shell(ctx, driverOf(seen.Device))).To(Equal("vfio-pci"))
		shell(ctx, "kill $(cat /run/holder)")
		Eventually(ctx, printed(driverOf(seen.Device))).WithTimeout(5 * time.Minute).Should(Equal("virtio-pci"))
		Expect(shell(ctx, "cat /sys/bus/pci/devices/"+seen.Device+"/driver_override")).To(Equal("(null)"))
	}, atMost)
}

// driverOf returns the command that prints the driver of a PCI function.
func driverOf(address string) string {
	return "basename $(readlink /sys/bus/pci/devices/" + address + "/driver)"
}

// published returns the names of the devices that the node publishes.
func published(ctx context.Context) ([]string, error) {
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			names = append(names, device.Name)
		}
	}
	return names, nil
}

// groups returns the published IOMMU groups by PCI address.
func groups(ctx context.Context) map[string]string {
	GinkgoHelper()
	list, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			address, group := device.Attributes["resource.kubernetes.io/pciBusID"], device.Attributes["iommuGroup"]
			if address.StringValue != nil && group.StringValue != nil {
				found[strings.TrimSpace(*address.StringValue)] = *group.StringValue
			}
		}
	}
	return found
}
