package vm

import (
	"bytes"
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	clicluster "github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// kernels has the specs of a node that has booted another of its kernels, the full one: for it, only the new driver has precompiled modules.
func kernels() {
	var kernel string

	BeforeAll(func() {
		list, err := node().Kernels()
		Expect(err).NotTo(HaveOccurred())
		kernel = list[1]
	})

	It("gets the driver of another kernel after it has booted into it", func(ctx context.Context) {
		Expect(node().SetKernel(kernel)).To(Succeed())
		Expect(node().Reboot(ctx)).To(Succeed())
		Expect(shell(ctx, "uname -r")).To(Equal(kernel))
		// Until then, the status is that of the former boot. A command on the node takes seconds of its processors, so that none waits.
		Eventually(ctx, func(ctx context.Context) (string, error) {
			n, err := c.GPUNode(ctx, vm)
			if err != nil || n.Status.LastGoodDriver == nil {
				return "", err
			}
			return n.Status.LastGoodDriver.Kernel, nil
		}).WithTimeout(15 * time.Minute).Should(Equal(kernel))
		reaches(ctx, "Ready", cluster.NewDriver)
		Expect(shell(ctx, "cat /sys/module/nvidia/version")).To(Equal(cluster.NewDriver))
		Expect(diagnosed(ctx)).To(ContainSubstring("vm1   2 GPUs   driver %s   kernel %s   healthy", cluster.NewDriver, kernel))
	}, atMost)

	It("reports a full disk, and removes nouveau before it loads its driver", func(ctx context.Context) {
		shell(ctx, "modprobe nouveau && grep nouveau /proc/modules")
		shell(ctx, "free=$(($(stat -f -c %a*%S /var/lib/kubelet))); fallocate -l $((free - (512 << 20))) /var/lib/full")
		DeferCleanup(shell, "rm -f /var/lib/full")
		restartDriver(ctx)
		eventually(ctx, MatchRegexp(`DiskFull: the file system of container images has [345]\d\d MiB free and the driver needs 1024 MiB; free some space`))
		Expect(shell(ctx, "grep -c nouveau /proc/modules")).NotTo(Equal("0"), "the check comes before all changes")
		shell(ctx, "rm /var/lib/full")
		reaches(ctx, "Ready", cluster.NewDriver)
		Expect(shell(ctx, "cat /proc/modules")).NotTo(ContainSubstring("nouveau"))
	}, atMost)

	It("reports that no image is for its kernel, and compiles the modules with the headers of the kernel", func(ctx context.Context) {
		emptyRegistry(ctx)
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) { p.Spec.Driver.Version = branch(cluster.OldDriver) })).To(Succeed())
		eventually(ctx, SatisfyAll(ContainSubstring("ImageNotFound"), ContainSubstring("there is no precompiled driver for kernel "+kernel+": push the image"),
			ContainSubstring("set usePrecompiled: false and a full version, so that the modules are compiled on the node")))

		By("following the message on a node without headers")
		shell(ctx, "mv /usr/src/linux-headers-"+kernel+" /usr/src/away")
		DeferCleanup(shell, "[ ! -e /usr/src/away ] || mv /usr/src/away /usr/src/linux-headers-"+kernel)
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Driver.UsePrecompiled, p.Spec.Driver.Version = false, cluster.OldDriver
		})).To(Succeed())
		eventually(ctx, SatisfyAll(ContainSubstring("HeadersMissing"), ContainSubstring("no headers for kernel "+kernel)))

		By("installing the headers")
		shell(ctx, "mv /usr/src/away /usr/src/linux-headers-"+kernel)
		reaches(ctx, "Ready", cluster.OldDriver)
		Expect(shell(ctx, "cat /sys/module/nvidia/version")).To(Equal(cluster.OldDriver))
		Expect(shell(ctx, "modinfo -F vermagic /run/nvidia/driver/lib/modules/"+kernel+"/updates/nvidia.ko")).To(HavePrefix(kernel + " "))
	}, atMost)

	It("reports secure boot, under which its kernel rejects modules without a signature", func(ctx context.Context) {
		Expect(node().EnableSecureBoot()).To(Succeed())
		Expect(node().Reboot(ctx)).To(Succeed())
		Expect(shell(ctx, "cat /sys/kernel/security/lockdown")).To(ContainSubstring("[integrity]"))
		eventually(ctx, ContainSubstring("SecureBoot: secure boot is on and the kernel rejects unsigned modules, which are those compiled on the node; "+
			"set usePrecompiled, or disable secure boot"))
		Eventually(ctx, func(ctx context.Context) (bool, error) {
			n, err := c.GPUNode(ctx, vm)
			return err == nil && n.Status.Hardware != nil && n.Status.Hardware.SecureBoot, err
		}).WithTimeout(5 * time.Minute).Should(BeTrue())

		By("following the message with an image whose modules have no signature either")
		Expect(c.EditPolicy(ctx, func(p *v1alpha1.ClusterPolicy) {
			p.Spec.Driver.UsePrecompiled, p.Spec.Driver.Version = true, branch(cluster.NewDriver)
		})).To(Succeed())
		eventually(ctx, SatisfyAll(ContainSubstring("SecureBoot"), ContainSubstring("Key was rejected by service"),
			ContainSubstring("enroll the key with which they are signed")))

		By("disabling secure boot")
		Expect(node().DisableSecureBoot()).To(Succeed())
		Expect(node().Reboot(ctx)).To(Succeed())
		reaches(ctx, "Ready", cluster.NewDriver)
	}, atMost)

	It("gets its driver and serves GPUs with a read-only root", func(ctx context.Context) {
		shell(ctx, "mkdir -p /etc/systemd/system/containerd.service.d && cat >/etc/systemd/system/containerd.service.d/root.conf <<'END'\n"+readOnlyRoot+"END")
		Expect(node().Reboot(ctx)).To(Succeed())
		Expect(shell(ctx, "touch /etc/file /usr/file /lib/modules/file 2>&1 | grep -c 'Read-only file system'")).To(Equal("3"))
		apply(ctx, podWith("unchanged", "gpu.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		running(ctx, "unchanged", 0)
		Expect(logged(ctx, "unchanged", "GPU 0")).To(ContainSubstring("H100"))
		reaches(ctx, "Ready", cluster.NewDriver)
	}, atMost)
}

// readOnlyRoot lets containerd start below a root that is read-only except for /var and /tmp, as that of distributions which are updated as images.
const readOnlyRoot = `[Service]
ExecStartPre=sh -c '[ ! -w /usr ] || mount --bind /var /var && mount -t tmpfs tmp /tmp && journalctl --relinquish-var && mount -o remount,bind,ro / && journalctl --flush'
`

// eventually waits until the state of the node matches, and prints its changes.
func eventually(ctx context.Context, matcher OmegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, changes()).WithTimeout(12 * time.Minute).Should(matcher)
}

// changes returns a function that returns the state of the node, and prints it if it has changed.
func changes() func(ctx context.Context) (string, error) {
	last := ""
	return func(ctx context.Context) (string, error) {
		now, err := where(ctx)
		if now != last {
			GinkgoWriter.Println(time.Now().Format(time.TimeOnly), now)
			last = now
		}
		return now, err
	}
}

// restartDriver deletes the driver's pod. The next one checks the node first.
func restartDriver(ctx context.Context) {
	GinkgoHelper()
	Expect(c.Client.CoreV1().Pods(cluster.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tessera-driver"})).To(Succeed())
}

// emptyRegistry starts the registry of the driver images on the node until the end of the spec. It has no image: those that the node has are imported.
func emptyRegistry(ctx context.Context) {
	GinkgoHelper()
	const answer = `while read -r line && [ "${#line}" -gt 1 ]; do :; done
printf "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
`
	shell(ctx, `mkdir -p /etc/containerd/certs.d/localhost && echo 'server = "http://127.0.0.1:5000"' >/etc/containerd/certs.d/localhost/hosts.toml`)
	shell(ctx, "cat >/run/registry.sh <<'END'\n"+answer+"END")
	shell(ctx, "systemd-run --quiet --collect --unit registry systemd-socket-activate --listen 127.0.0.1:5000 --accept --inetd sh /run/registry.sh")
	DeferCleanup(shell, "systemctl stop registry && rm -r /etc/containerd/certs.d/localhost")
}

// diagnosed returns the output of `tessera doctor` for the node.
func diagnosed(ctx context.Context) string {
	GinkgoHelper()
	var out bytes.Buffer
	flags := clicluster.NewFlags()
	*flags.KubeConfig, flags.Drivers = c.Kubeconfig(), []string{v1alpha1.DriverName}
	cmd := doctor.Command(flags) //nolint:contextcheck // ExecuteContext passes ctx
	cmd.SetArgs([]string{vm})
	cmd.SetOut(&out)
	Expect(cmd.ExecuteContext(ctx)).To(Succeed(), "%s", &out)
	GinkgoWriter.Println(out.String())
	return out.String()
}
