package installation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// taintedNodes returns the nodes whose GPUs are tainted for a maintenance, by a DeviceTaintRule or in ResourceSlices.
func taintedNodes(ctx context.Context) []string {
	GinkgoHelper()
	found, err := c.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for i := range found.Items {
		if maintained(&found.Items[i]) {
			names = append(names, *found.Items[i].Spec.NodeName)
		}
	}
	if lab.RunsOwnScheduler(c.Kubernetes()) { // DeviceTaintRules are served
		rules, err := c.Client.ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, rule := range rules.Items {
			if name, is := strings.CutPrefix(rule.Name, "tessera-maintenance-"); is {
				names = append(names, name)
			}
		}
	}
	return names
}

// maintained reports whether the agent has published a ResourceSlice with the taint of a maintenance.
func maintained(s *resourceapi.ResourceSlice) bool {
	return s.Spec.NodeName != nil && slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool {
		return slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintMaintenance })
	})
}

// followTaints returns a function that returns the nodes whose ResourceSlices had the taint of a maintenance since the call, sorted.
func followTaints(ctx context.Context) func() []string {
	GinkgoHelper()
	watch, err := c.Client.ResourceV1().ResourceSlices().Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watch.Stop)
	var mutex sync.Mutex
	nodes := map[string]bool{}
	go func() {
		for event := range watch.ResultChan() {
			if slice, is := event.Object.(*resourceapi.ResourceSlice); is && maintained(slice) {
				mutex.Lock()
				nodes[*slice.Spec.NodeName] = true
				mutex.Unlock()
			}
		}
	}()
	return func() []string {
		mutex.Lock()
		defer mutex.Unlock()
		return slices.Sorted(maps.Keys(nodes))
	}
}
