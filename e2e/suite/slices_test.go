package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/lab"
)

// published is a device as the API server has it.
type published struct{ resourceapi.Device }

func (p published) attribute(name resourceapi.QualifiedName) string {
	if value := p.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// slicesOf returns the pool of a node.
func slicesOf(ctx context.Context, on *lab.Node) []resourceapi.ResourceSlice {
	GinkgoHelper()
	return answer(ctx, func(ctx context.Context) (*resourceapi.ResourceSliceList, error) {
		return c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + on.Name()})
	}).Items
}

// allocated returns the devices of a claim as they are published.
func (r room) allocated(ctx context.Context, claim string) []published {
	GinkgoHelper()
	list, err := r.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var devices []published
	for _, result := range r.results(ctx, claim) {
		for _, slice := range list.Items {
			for _, device := range slice.Spec.Devices {
				if slice.Spec.Pool.Name == result.Pool && device.Name == result.Device {
					devices = append(devices, published{device})
				}
			}
		}
	}
	Expect(devices).To(HaveLen(len(r.results(ctx, claim))), "every allocated device is published")
	return devices
}

// counter returns what a node publishes of a counter of a GPU.
func counter(ctx context.Context, on *lab.Node, gpuName, name string) int64 {
	GinkgoHelper()
	for _, slice := range slicesOf(ctx, on) {
		for _, set := range slice.Spec.SharedCounters {
			if set.Name == gpuName {
				value := set.Counters[name].Value
				return value.Value()
			}
		}
	}
	return -1
}
