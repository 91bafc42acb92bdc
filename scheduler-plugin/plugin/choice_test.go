package plugin_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
	"github.com/tessera-gpu/tessera/scheduler-plugin/index"
	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// oracle computes the choice of fit in a cluster from the objects of the API server only.
type oracle struct {
	index   *index.Index
	reader  *requirements.Reader
	classes map[string]*resourceapi.DeviceClass
	claims  []resourceapi.ResourceClaim
}

func newOracle(objects []runtime.Object) *oracle {
	o := &oracle{index: index.New(index.Config{Drivers: []string{driver}}), classes: map[string]*resourceapi.DeviceClass{}}
	o.reader = requirements.NewReader(o, o.index)
	for _, object := range objects {
		switch object := object.(type) {
		case *resourceapi.ResourceSlice:
			o.index.SetSlice(object)
		case *resourceapi.DeviceClass:
			o.classes[object.Name] = object
		}
	}
	return o
}

func (o *oracle) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := o.classes[name]; ok {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// choices returns the devices that fit would allocate to the claim, by node. It waits until the scheduler has received
// all released claims: they arrive through another informer than pods.
func (o *oracle) choices(c *cluster, claim *resourceapi.ResourceClaim) map[string][]string {
	c.tb.Helper()
	list, err := c.client.ResourceV1().ResourceClaims("").List(c.ctx, metav1.ListOptions{})
	if err != nil {
		c.tb.Fatal(err)
	}
	for i := range o.claims {
		if !slices.ContainsFunc(list.Items, func(c resourceapi.ResourceClaim) bool { return c.UID == o.claims[i].UID }) {
			o.index.DeleteClaim(&o.claims[i])
		}
	}
	o.claims = list.Items
	for i := range o.claims {
		o.index.SetClaim(&o.claims[i])
	}
	d, err := o.reader.Read([]*resourceapi.ResourceClaim{claim}, nil)
	if err != nil {
		c.tb.Fatal(err)
	}
	chosen := map[string][]string{}
	nodes, _ := o.index.Changed(0)
	c.eventually("the scheduler's cache equals the API server", func() bool {
		known, _ := c.plugin.Indexes()[0].Changed(0)
		return maps.EqualFunc(nodes, known, func(a, b *index.Node) bool { return slices.EqualFunc(a.Held, b.Held, sameHold) })
	})
	for name, n := range nodes {
		demands, err := d.OnNode(n, nil)
		if err != nil {
			c.tb.Fatal(err)
		}
		choice, ok := fit.Choose(&n.Fit, demands, nil)
		if !ok {
			continue
		}
		for _, pick := range choice.Picks {
			for _, device := range pick.Devices {
				chosen[name] = append(chosen[name], n.Devices[device].Name)
			}
		}
	}
	return chosen
}

func sameHold(a, b index.Held) bool { return a.UID == b.UID && a.Result.Device == b.Result.Device }

// TestSchedulerAllocatesWhatFitChooses creates and deletes pods, 500 times.
func TestSchedulerAllocatesWhatFitChooses(t *testing.T) {
	objects := slices.Concat(machines(t, "h100x2", 2), []runtime.Object{newNode("node-8")})
	for _, s := range published(t, "dgx1", "node-8") {
		objects = append(objects, s)
	}
	c, o := newCluster(t, "", objects...), newOracle(objects)
	random := rand.New(rand.NewPCG(1, 2))
	classes := []string{"1g.10gb", "1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "gpu", "timeshare"}
	var running []string
	for i := range 500 {
		if len(running) > 0 && random.IntN(10) < 4 {
			at := random.IntN(len(running))
			c.release(running[at])
			running = slices.Delete(running, at, at+1)
			continue
		}
		name := fmt.Sprintf("a%d", i)
		class := classes[random.IntN(len(classes))]
		count := int64(1)
		if class == "gpu" {
			count += random.Int64N(2)
		}
		claim := claimFor(name, class, count)
		want := o.choices(c, claim)
		c.create(claim)
		c.create(newPod(name, name))
		if len(want) == 0 {
			c.pending(name)
			c.release(name)
			continue
		}
		node := c.bound(name)
		got := devices(c.claim(name))
		slices.Sort(got)
		slices.Sort(want[node])
		if diff := cmp.Diff(want[node], got); diff != "" {
			t.Fatalf("pod %d on %s, %d of %s (-want +got):\n%s", i, node, count, class, diff)
		}
		running = append(running, name)
	}
}
