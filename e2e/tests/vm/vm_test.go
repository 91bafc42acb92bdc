// Package vm tests the product on nodes that are virtual machines: stock kernels of Debian 12, systemd, cgroup v2, and container runtimes as a distribution
// configures them. Only the GPUs are fake.
package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
	"github.com/tessera-gpu/tessera/e2e/tests/specs"
)

// atMost limits a spec. Everything in a virtual machine takes about 12 times as long as on a node, and longer while the host is busy.
const atMost = NodeTimeout(20 * time.Minute)

// c is the cluster of the current specs. It has one node, a virtual machine with two fake H100.
var c *cluster.Cluster

// vm is the name of the node, functions are the addresses of its GPUs.
const vm = "vm1"

var functions = []string{"0000:1b:00.0", "0000:43:00.0"}

func TestVM(t *testing.T) {
	specs.Run(t, specs.VM)
}

// up makes the cluster of the specs of an ordered container, and removes it after them.
func up(name string, start func(ctx context.Context, config cluster.Config) (*cluster.Cluster, error)) {
	BeforeAll(func(ctx context.Context) {
		folder := specs.Folder(name)
		Expect(lab.Down(ctx, folder)).To(Succeed(), "remove the lab of an earlier run")
		DeferCleanup(func(ctx context.Context) {
			if os.Getenv("TESSERA_KEEP_LAB") == "" {
				Expect(lab.Down(ctx, folder)).To(Succeed())
			}
		})
		var err error
		c, err = start(ctx, cluster.Config{Folder: folder, Progress: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(40*time.Minute))
}

// crun selects the other container runtime of the node.
const crun = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: crun}
handler: crun
`

// node returns the virtual machine.
func node() *lab.Node {
	GinkgoHelper()
	n, err := c.Node(vm)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// shell runs a command on the node and returns what it has printed.
func shell(ctx context.Context, command string) string {
	GinkgoHelper()
	output, err := printed(command)(ctx)
	Expect(err).NotTo(HaveOccurred())
	return output
}

// printed returns a function that runs a command on the node and returns what it has printed, for Eventually: a connection to a node that is busy can fail.
func printed(command string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		n, err := c.Node(vm)
		if err != nil {
			return "", err
		}
		output, err := n.Exec(ctx, "sh", "-c", command)
		return strings.TrimSpace(string(output)), err
	}
}

func decode(text string) []*unstructured.Unstructured {
	GinkgoHelper()
	list, err := cluster.Decode([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	return list
}

// apply creates the objects until the end of the spec.
func apply(ctx context.Context, text string) {
	GinkgoHelper()
	list := decode(text)
	DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, list...)).To(Succeed()) })
	Expect(c.Apply(ctx, list...)).To(Succeed())
}

// podWith returns a pod with a claim for one device of a class, and the claim's template.
func podWith(name, class, runtime, command string) string {
	text := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %[2]s}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimTemplateName: %[1]s}]
  containers:
  - name: main
    image: %[4]s
    command: [sh, -c, %[3]q]
    resources: {claims: [{name: gpu}]}
`, name, class, command, cluster.ProbeImage)
	if runtime != "" {
		text += "  runtimeClassName: " + runtime + "\n"
	}
	return text
}

// running returns the pod when its container runs with at least so many restarts.
func running(ctx context.Context, name string, restarts int32) *corev1.Pod {
	GinkgoHelper()
	var pod *corev1.Pod
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		var err error
		pod, err = c.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.ContainerStatuses).NotTo(BeEmpty(), "%s: %v", pod.Status.Phase, pod.Status.Conditions)
		status := pod.Status.ContainerStatuses[0]
		g.Expect(status.State.Running).NotTo(BeNil(), "%v", status.State)
		g.Expect(status.RestartCount).To(BeNumerically(">=", restarts))
	}).WithTimeout(10 * time.Minute).Should(Succeed())
	return pod
}

// logged returns the output of the pod's container when it has a line with the prefix.
func logged(ctx context.Context, name, prefix string) string {
	GinkgoHelper()
	var line string
	Eventually(ctx, func(g Gomega, ctx context.Context) {
		text, err := c.Client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		i := slices.IndexFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, prefix) })
		g.Expect(i).To(BeNumerically(">=", 0), "%s", text)
		line = strings.Split(string(text), "\n")[i]
	}).WithTimeout(5 * time.Minute).Should(Succeed())
	return line
}

// withRuntime returns the example with pods that another container runtime runs.
func withRuntime(example expect.Example, runtime string) expect.Example {
	GinkgoHelper()
	changed := example
	changed.Objects = nil
	for _, object := range example.Objects {
		object = object.DeepCopy()
		if object.GetKind() == "Pod" && runtime != "" {
			Expect(unstructured.SetNestedField(object.Object, runtime, "spec", "runtimeClassName")).To(Succeed())
		}
		changed.Objects = append(changed.Objects, object)
	}
	return changed
}

var _ = Describe("A virtual machine", Ordered, ContinueOnFailure, func() {
	up("vm", func(ctx context.Context, config cluster.Config) (*cluster.Cluster, error) {
		config.Nodes = []lab.NodeSpec{{Name: vm, GPU: "h100x2,driver=" + cluster.LimitedDriver, Virtual: true, Functions: functions}}
		return cluster.Up(ctx, config)
	})

	BeforeAll(func(ctx context.Context) { Expect(c.Apply(ctx, decode(crun)...)).To(Succeed()) })

	Context("with cgroup v2 and systemd", controlGroups)
	Context("whose driver limits GPU memory", memoryLimits)
	Context("whose GPUs are for virtual machines", passthrough)
})

func controlGroups() {
	It("is one", func(ctx context.Context) {
		Expect(shell(ctx, "stat -f -c %T /sys/fs/cgroup")).To(Equal("cgroup2fs"))
		Expect(shell(ctx, "cat /proc/1/comm")).To(Equal("systemd"))
		Expect(shell(ctx, "uname -r")).To(HaveSuffix("-cloud-amd64"))
		Expect(shell(ctx, "ls -d /sys/fs/cgroup/kubepods.slice")).NotTo(BeEmpty(), "kubelet uses the systemd driver")
	}, atMost)

	for _, runtime := range []string{"", "crun"} {
		for _, file := range []string{"whole-gpu.yaml", "mig-size.yaml", "time-share.yaml"} {
			It(strings.TrimSpace("runs "+file+" "+runtime), func(ctx context.Context) {
				examples, err := expect.Load(os.DirFS("../../../deployments/examples"))
				Expect(err).NotTo(HaveOccurred())
				example := withRuntime(examples[slices.IndexFunc(examples, func(e expect.Example) bool { return e.File == file })], runtime)
				DeferCleanup(func(ctx context.Context) { Expect(c.Delete(ctx, example.Objects...)).To(Succeed()) })
				watcher, err := expect.NewWatcher(ctx, c.Client)
				Expect(err).NotTo(HaveOccurred())
				outcomes, err := watcher.Run(ctx, c, example)
				Expect(err).NotTo(HaveOccurred())
				for _, outcome := range outcomes {
					Expect(expect.Compare(outcome, outcomes)).To(BeEmpty(), "%s", outcome.Subject)
				}
			}, atMost)
		}

		It(strings.TrimSpace("lets a container open the devices of its claim alone "+runtime), func(ctx context.Context) {
			apply(ctx, podWith("alone", "gpu.tessera.dev", runtime, "probe isolation 120-122 0-255 && exec sleep 3600"))
			running(ctx, "alone", 0)
			var result struct {
				Granted []string
				Other   []any
			}
			Expect(json.Unmarshal([]byte(logged(ctx, "alone", `{"granted"`)), &result)).To(Succeed())
			// One GPU, nvidia-modeset and nvidiactl; nvidia-uvm and nvidia-uvm-tools.
			Expect(result.Granted).To(Or(Equal([]string{"120:0", "120:254-255", "121:0-1"}), Equal([]string{"120:1", "120:254-255", "121:0-1"})))
			Expect(result.Other).To(BeEmpty(), "neither the device rules nor the absence of a driver decided")
			// On cgroup v2 the rules are a program of the kernel, in the container's own group. The hook that limits GPU memory has found the same group.
			group := groupOf(ctx, "alone")
			Expect(group).To(MatchRegexp(`^/kubepods\.slice/.*/cri-containerd-[0-9a-f]+\.scope`))
			Expect(shell(ctx, limited)).To(ContainSubstring(`"group":"` + group + `"`))
		}, atMost)
	}

	It("keeps the devices of running containers over restarts of containerd and kubelet", func(ctx context.Context) {
		apply(ctx, podWith("kept", "mig.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		before := running(ctx, "kept", 0).Status.ContainerStatuses[0]
		device := logged(ctx, "kept", "  MIG")
		for _, service := range []string{lab.Containerd, lab.Kubelet} {
			By("restarting " + service)
			Expect(node().RestartService(ctx, service)).To(Succeed())
			Expect(node().Ready(ctx)).To(Succeed())
		}
		apply(ctx, podWith("second", "mig.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		running(ctx, "second", 0)
		Expect(logged(ctx, "second", "  MIG")).NotTo(Equal(device))
		after := running(ctx, "kept", 0).Status.ContainerStatuses[0]
		Expect(after.ContainerID).To(Equal(before.ContainerID))
		container := strings.TrimPrefix(after.ContainerID, "containerd://")
		Expect(shell(ctx, "ctr --namespace k8s.io task exec --exec-id look "+container+" nvidia-smi -L")).To(ContainSubstring(strings.TrimSpace(device)))
	}, atMost)

	It("gives pods equal devices after a reboot", func(ctx context.Context) {
		apply(ctx, podWith("again", "mig.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		running(ctx, "again", 0)
		device := logged(ctx, "again", "  MIG")
		boot := shell(ctx, "cat /proc/sys/kernel/random/boot_id")
		Expect(node().Reboot(ctx)).To(Succeed())
		Expect(shell(ctx, "cat /proc/sys/kernel/random/boot_id")).NotTo(Equal(boot))
		running(ctx, "again", 1)
		profile := strings.Fields(device)[1]
		Expect(strings.Fields(logged(ctx, "again", "  MIG"))[1]).To(Equal(profile))
		apply(ctx, podWith("whole", "gpu.tessera.dev", "", "nvidia-smi -L && exec sleep 3600"))
		running(ctx, "whole", 0)
	}, atMost)
}
