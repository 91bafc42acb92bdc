package suite

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// published is a device as the API server has it.
type published struct{ resourceapi.Device }

func (p published) attribute(name resourceapi.QualifiedName) string {
	if value := p.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// slicesOf returns the current ResourceSlices of a node. The list is incomplete while the pool is being written and
// after kubelet has deleted it.
func slicesOf(ctx context.Context, on *lab.Node) []resourceapi.ResourceSlice {
	GinkgoHelper()
	return answer(ctx, func(ctx context.Context) (*resourceapi.ResourceSliceList, error) {
		return c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + on.Name()})
	}).Items
}

// pool returns the ResourceSlices of a node after all are published.
func pool(ctx context.Context, on *lab.Node) (list []resourceapi.ResourceSlice) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) bool {
		list = slicesOf(ctx, on)
		return expect.ReadFences(list).Whole
	}).WithPolling(50*time.Millisecond).Should(BeTrue(), "%s publishes its devices", on.Name())
	return list
}

// allocated returns the published devices of a claim, after all are published.
func (r room) allocated(ctx context.Context, claim string) []published {
	GinkgoHelper()
	results := r.results(ctx, claim)
	return answer(ctx, func(ctx context.Context) ([]published, error) {
		list, err := r.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var devices []published
		for _, result := range results {
			device, ok := find(list.Items, result)
			if !ok {
				return nil, fmt.Errorf("device %s of pool %s: not published", result.Device, result.Pool)
			}
			devices = append(devices, device)
		}
		return devices, nil
	})
}

// find returns an allocated device from the ResourceSlices.
func find(list []resourceapi.ResourceSlice, result resourceapi.DeviceRequestAllocationResult) (published, bool) {
	for _, slice := range list {
		for _, device := range slice.Spec.Devices {
			if slice.Spec.Pool.Name == result.Pool && device.Name == result.Device {
				return published{device}, true
			}
		}
	}
	return published{}, false
}

// counter returns the value of a published counter of a GPU.
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
