package index_test

import (
	"context"
	"testing"
	"testing/synctest"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"

	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
)

// TestFollow checks that the index receives ResourceSlices, rules and claims from the scheduler's informers, to which
// the scheduler's own tracker was attached first.
func TestFollow(t *testing.T) {
	t.Parallel()
	n := machine(t, "h100x2", "n1")
	list := publish(t, n, 1, 1)
	for name, rules := range map[string]bool{"with rules": true, "without rules": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				client := fake.NewClientset(list[0].DeepCopy(), list[1].DeepCopy(), claimOf("early", 1, result("n1", whole(n, 1))))
				factory := informers.NewSharedInformerFactory(client, 0)
				defer factory.Shutdown()
				defer cancel()
				resources := factory.Resource().V1()
				sources := index.Sources{Slices: resources.ResourceSlices(), Claims: resources.ResourceClaims()}
				if rules {
					sources.TaintRules = resources.DeviceTaintRules()
					if _, err := tracker.StartTracker(ctx, tracker.Options{
						EnableDeviceTaintRules: true, SliceInformer: sources.Slices, TaintInformer: sources.TaintRules,
					}); err != nil {
						t.Fatal(err)
					}
				}
				x := newIndex()
				synced, err := x.Follow(ctx, sources)
				if err != nil {
					t.Fatal(err)
				}
				if synced() {
					t.Error("synced before the informers run")
				}
				factory.Start(ctx.Done())
				synctest.Wait()
				if !synced() {
					t.Error("not synced")
				}
				if got := known(t, x, "n1").Load(); got != (index.Load{GPUs: 2, Idle: 1, Slices: 16, Free: 8}) {
					t.Errorf("load %+v", got)
				}
				changeCluster(ctx, t, client, n.GPUs[0].Name())
				taints := 0
				for _, d := range known(t, x, "n1").Devices {
					taints += len(d.Taints)
				}
				if want := map[bool]int{true: len(list[1].Spec.Devices)}[rules]; taints != want {
					t.Errorf("%d devices are tainted, want %d", taints, want)
				}
				if got := known(t, x, "n1").Load(); got.Idle != 1 || got.Free != 8 {
					t.Errorf("load %+v", got)
				}
				for _, s := range list {
					if err := client.ResourceV1().ResourceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if _, ok := x.Node("n1"); ok {
					t.Error("the node is known without slices")
				}
			})
		})
	}
}

// changeCluster deletes the existing claim, creates another one that holds the device, and creates a rule that taints
// all devices of our driver.
func changeCluster(ctx context.Context, t *testing.T, client *fake.Clientset, device string) {
	t.Helper()
	if err := client.ResourceV1().ResourceClaims("team").Delete(ctx, "early", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ResourceV1().ResourceClaims("team").Create(ctx, claimOf("late", 1, result("n1", device)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rule := &resourceapi.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "drain"}}
	rule.Spec.DeviceSelector = &resourceapi.DeviceTaintSelector{Driver: new(driver)}
	rule.Spec.Taint = resourceapi.DeviceTaint{Key: "drain", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	if _, err := client.ResourceV1().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}
