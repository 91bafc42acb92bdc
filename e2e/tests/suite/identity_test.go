package suite

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
)

// agentOf returns a client with a token of the node's agent that is bound to its pod, as kubelet requests it.
func agentOf(ctx context.Context, node string) kubernetes.Interface {
	GinkgoHelper()
	pod := agent(ctx, node)
	token, err := c.Client.CoreV1().ServiceAccounts(cluster.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

func sliceOf(node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "by-hand-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: wire.PoolName(node, driver), ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "nothing"}},
		},
	}
}

var _ = Describe("An agent's identity", func() {
	It("writes the slices of its own node and driver and no other", func(ctx context.Context) {
		slices := agentOf(ctx, "node2").ResourceV1().ResourceSlices()
		_, err := slices.Create(ctx, sliceOf("node1", driver), metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("the agent on node node2 may not write the ResourceSlice of node node1")))
		_, err = slices.Create(ctx, sliceOf("node2", "fpga.example.com"), metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("may not write ResourceSlices of driver fpga.example.com")))
		stolen := sliceOf("node2", driver)
		stolen.Spec.Pool.Name = wire.PoolName("node1", driver)
		_, err = slices.Create(ctx, stolen, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("the agent on node node2 may not write the pool node1-" + driver)))

		theirs := pool(ctx, node("node1"))[0]
		Expect(slices.Delete(ctx, theirs.Name, metav1.DeleteOptions{})).To(MatchError(ContainSubstring("may not write")))
		patch := fmt.Appendf(nil, `{"spec":{"pool":{"generation":%d}}}`, theirs.Spec.Pool.Generation+1)
		_, err = slices.Patch(ctx, theirs.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring("may not write")))

		own, err := slices.Create(ctx, sliceOf("node2", driver), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(*own.Spec.NodeName).To(Equal("node2"))
	})

	It("writes the status of claims of its own node and no other", func(ctx context.Context) {
		r := newRoom(ctx)
		r.hold(ctx, "mine", request("gpu", wholeClass, onH100))
		result := r.results(ctx, "mine")[0]
		write := func(node string) error {
			const format = `{"status":{"devices":[{"driver":%q,"pool":%q,"device":%q,"data":{"writer":%q}}]}}`
			status := fmt.Appendf(nil, format, result.Driver, result.Pool, result.Device, node)
			_, err := agentOf(ctx, node).ResourceV1().ResourceClaims(r.namespace).Patch(ctx, "mine", types.MergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		}
		Expect(write("node1")).To(Succeed())
		Expect(write("node2")).To(MatchError(ContainSubstring("forbidden")))
	})

	It("may do nothing else", func(ctx context.Context) {
		client := agentOf(ctx, "node2")
		_, err := client.CoreV1().Secrets(cluster.Namespace).List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		_, err = client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		_, err = client.CoreV1().Nodes().Patch(ctx, "node2", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
	})
})
