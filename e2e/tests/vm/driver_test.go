package vm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/driverimage"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/disk"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/fake/modules"
)

// The chart is installed with the host paths of its defaults: /proc, /sys and /dev are the machine's, and modules are loaded into its kernel. The driver's
// containers have the entry point of our images for Debian, which loads the modules of e2e/fake/modules with the machine's modprobe.
var _ = Describe("A bare virtual machine", Ordered, ContinueOnFailure, func() {
	up("vm-bare", func(ctx context.Context, config cluster.Config) (*cluster.Cluster, error) {
		images, err := cluster.InstallerImages(ctx, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		config.Images = append(images, drivers(ctx)...)
		config.Nodes = []lab.NodeSpec{{Name: vm, GPU: "h100x2,bare", Virtual: true, Functions: functions}}
		return cluster.Bare(ctx, config)
	})

	It("becomes ready with modules in its kernel", func(ctx context.Context) {
		Expect(shell(ctx, "cat /proc/modules")).NotTo(ContainSubstring("nvidia"))
		Expect(c.InstallChart(ctx, values)).To(Succeed())
		reaches(ctx, "Ready", cluster.OldDriver)
		modules := shell(ctx, "cat /proc/modules")
		Expect(modules).To(MatchRegexp(`(?m)^nvidia \d+ 2 nvidia_(uvm|modeset),nvidia_(uvm|modeset), Live`))
		Expect(shell(ctx, "cat /sys/module/nvidia/version")).To(Equal(cluster.OldDriver))
		Expect(shell(ctx, "grep nvidia /proc/devices")).To(ContainSubstring("120 nvidiactl"))
		apply(ctx, podWith("first", "gpu.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		running(ctx, "first", 0)
		Expect(logged(ctx, "first", "GPU 0")).To(ContainSubstring("H100"))
		Expect(shell(ctx, "stat -c %t:%T /dev/nvidia0")).To(Equal("78:0"))
	}, atMost)

	It("keeps its driver while a process has a device open, and reports that", func(ctx context.Context) {
		shell(ctx, "setsid sh -c 'exec 3</dev/nvidia0; exec sleep 3600' >/dev/null 2>&1 & echo $! >/run/holder")
		DeferCleanup(shell, "kill $(cat /run/holder) || true")
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Upgrade = v1alpha1.UpgradePolicy{
				Canary: new(intstr.FromInt32(0)), Soak: &metav1.Duration{Duration: time.Second}, MaxUnavailable: new(intstr.FromString("100%")),
				RetryAfter: &metav1.Duration{Duration: 5 * time.Second},
			}
			p.Spec.Driver.Version = branch(cluster.NewDriver)
		})).To(Succeed())
		Eventually(ctx, where).WithTimeout(10 * time.Minute).Should(ContainSubstring("InUse"))
		Expect(shell(ctx, "cat /sys/module/nvidia/version")).To(Equal(cluster.OldDriver))
		shell(ctx, "kill $(cat /run/holder)")
		reaches(ctx, "Ready", cluster.NewDriver)
		Expect(shell(ctx, "cat /sys/module/nvidia/version")).To(Equal(cluster.NewDriver))
	}, atMost)

	It("reports that NVIDIA's own modules find no GPU, and returns to the driver that works", func(ctx context.Context) {
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Driver.Version, p.Spec.Driver.KernelModuleType = "535", v1alpha1.ModulesProprietary
		})).To(Succeed())
		Eventually(ctx, where).WithTimeout(12 * time.Minute).Should(SatisfyAll(
			ContainSubstring("modprobe: ERROR: could not insert 'nvidia': No such device"), ContainSubstring("no GPU that this driver supports is on the PCI bus")))
		Expect(shell(ctx, "dmesg")).To(ContainSubstring("NVRM: No NVIDIA GPU found."), "the words of NVIDIA's module")
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Driver.Version, p.Spec.Driver.KernelModuleType = branch(cluster.NewDriver), ""
		})).To(Succeed())
		reaches(ctx, "Ready", cluster.NewDriver)
	}, atMost)

	Context("with another kernel", kernels)
})

func branch(version string) string {
	branch, _, _ := strings.Cut(version, ".")
	return branch
}

// where returns the state of the node as text.
func where(ctx context.Context) (string, error) { return c.NodeState(ctx, vm) }

// reaches waits until the node is in a phase, with a driver version.
func reaches(ctx context.Context, phase v1alpha1.NodePhase, version string) {
	GinkgoHelper()
	Eventually(ctx, changes()).WithTimeout(12 * time.Minute).Should(HavePrefix("%s, %s", phase, version))
}

// values are the host paths of the chart's defaults, which other labs override, and precompiled drivers.
var values = cluster.Values{
	"images": cluster.Values{"driver": cluster.Values{"repository": driverimage.Name, "version": branch(cluster.OldDriver)}},
	"clusterPolicy": cluster.Values{
		"hostPaths": cluster.Values{"proc": "", "sys": "", "dev": ""},
		"driver":    cluster.Values{"usePrecompiled": true},
	},
}

// drivers returns the archives of precompiled driver images for the kernels of the machine, with the user space of the fake GPUs and their modules, of one with
// NVIDIA's, and of the old driver that compiles its modules on the node. The old driver is not precompiled for the second kernel.
func drivers(ctx context.Context) []string {
	GinkgoHelper()
	cache, err := binaries.DefaultCache()
	Expect(err).NotTo(HaveOccurred())
	base, err := disk.Build(ctx, cache, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	kernels, err := base.Kernels()
	Expect(err).NotTo(HaveOccurred())
	folder, err := os.MkdirTemp("", "drivers-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, folder)
	source, err := binaries.Source()
	Expect(err).NotTo(HaveOccurred())
	nvidias, err := driverimage.Build(ctx, driverimage.Want{Version: "535", Type: "proprietary", Kernel: kernels[0], Precompiled: true}, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	archives := []string{nvidias[0].Archive}
	for version, kernels := range map[string][]string{cluster.OldDriver: kernels[:1], cluster.NewDriver: kernels} {
		driver := driverimage.Driver{Version: version, User: filepath.Join(folder, version, "user"), Sources: filepath.Join(folder, version, "sources")}
		Expect(fakegpu.WriteDriver(ctx, driver.User, version)).To(Succeed())
		Expect(binaries.Compile(ctx, source, "./e2e/fake/operands/driver", filepath.Join(driver.User, "usr/bin/nvidia-persistenced"))).To(Succeed())
		Expect(modules.Write(driver.Sources, fakegpu.Spec{Node: vm, Machine: "h100x2", DriverVersion: version})).To(Succeed())
		images, err := driverimage.Precompiled(ctx, driver, kernels, base.Headers(), folder, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		for _, image := range images {
			archives = append(archives, image.Archive)
		}
		if version == cluster.OldDriver {
			image, err := driverimage.Compiling(ctx, driver, folder, GinkgoWriter)
			Expect(err).NotTo(HaveOccurred())
			archives = append(archives, image.Archive)
		}
	}
	return archives
}
