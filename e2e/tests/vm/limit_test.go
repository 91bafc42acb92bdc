package vm

import (
	"cmp"
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// limited prints the agent's records of the containers for which the hook has run.
const limited = "cat /var/lib/kubelet/plugins/gpu.tessera.dev/limits/containers/*.json"

// memoryLimits has the specs of a driver that limits GPU memory, with the controller misc: Debian's kernels have no dmem. runc enables all controllers for a
// container. crun does not, but containerd does for each pod, after the creation of its sandbox.
func memoryLimits() {
	for _, runtime := range []string{"", "crun"} {
		It(strings.TrimSpace("limits a time share before its first instruction, and again after a restart "+runtime), func(ctx context.Context) {
			Expect(strings.Fields(shell(ctx, "cat /sys/fs/cgroup/cgroup.controllers"))).To(And(ContainElement("misc"), Not(ContainElement("dmem"))))
			name := "limited-" + cmp.Or(runtime, "runc")
			apply(ctx, podWith(name, "timeshare.tessera.dev", runtime, "exec probe --stay 3600 share"))
			var groups []string
			for restarts := range int32(2) {
				groups = append(groups, limitedGroup(ctx, name, restarts))
				By("starting another process in the container, which has nothing left")
				container := containerOf(ctx, name)
				Expect(shell(ctx, "ctr --namespace k8s.io task exec --exec-id other "+container+" probe share 1 || true")).To(Equal(`{"failed":"cuCtxCreate","error":2}`))
				if restarts == 0 {
					shell(ctx, "ctr --namespace k8s.io task kill --signal SIGKILL "+container)
				}
			}
			Expect(groups[1]).NotTo(Equal(groups[0]))

			By("deleting the pod: nothing is left of its control groups, and the next agent removes their records")
			Expect(c.Client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
			Eventually(ctx, printed("ls -d /sys/fs/cgroup"+groups[1]+" 2>/dev/null || true")).WithTimeout(5 * time.Minute).Should(BeEmpty())
			Expect(c.Client.CoreV1().Pods(cluster.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + cluster.AgentName})).To(Succeed())
			Eventually(ctx, printed(limited+" 2>/dev/null || true")).WithTimeout(10 * time.Minute).ShouldNot(Or(ContainSubstring(groups[0]), ContainSubstring(groups[1])))
		}, atMost)
	}
}

// limitedGroup returns the control group of the pod's container after so many restarts, once its first process has used all that it can.
func limitedGroup(ctx context.Context, name string, restarts int32) string {
	GinkgoHelper()
	running(ctx, name, restarts)
	// A tenth of the GPU's 79 GiB in whole GiB, less a context of 256 MiB.
	Expect(logged(ctx, name, `{"devices"`)).To(And(ContainSubstring(`"totalMiB":7168,"freeMiB":6912`), ContainSubstring(`"allocatedMiB":6912,"refused":2`)))
	group := groupOf(ctx, name)
	Expect(strings.Fields(shell(ctx, "cat /sys/fs/cgroup"+group+"/cgroup.controllers"))).To(ContainElement("misc"))
	Expect(shell(ctx, limited)).To(ContainSubstring(`"group":"` + group + `"`))
	return group
}

// containerOf returns the ID of the pod's container, which runs.
func containerOf(ctx context.Context, name string) string {
	GinkgoHelper()
	return strings.TrimPrefix(running(ctx, name, 0).Status.ContainerStatuses[0].ContainerID, "containerd://")
}

// groupOf returns the control group of the pod's container as the node sees it.
func groupOf(ctx context.Context, name string) string {
	GinkgoHelper()
	return shell(ctx, "sed -n s/^0:://p /proc/$(ctr --namespace k8s.io task ls | awk '$1 == \""+containerOf(ctx, name)+"\" {print $2}')/cgroup")
}
