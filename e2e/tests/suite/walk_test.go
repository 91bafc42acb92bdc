package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

// claimed is the entry of a device in a record on a node.
type claimed struct {
	GPU, Shape string
	Admin      bool
	Placement  *struct{ Profile, Start, Size int }
	Share      *struct {
		MemoryBytes uint64
		Shares      int
		Compute     int
	}
}

// recorded returns the devices of a record. The record is the value of a field next to its checksum.
func recorded(text []byte) ([]claimed, error) {
	var file struct {
		Record  json.RawMessage
		Devices []claimed
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Record == nil {
		return file.Devices, nil
	}
	return recorded(file.Record)
}

// use returns the device as a use in the GPU model.
func (d claimed) use() (gpu.Use, error) {
	shape, err := gpu.ParseShape(d.Shape)
	u := gpu.Use{Shape: shape}
	if d.Placement != nil {
		u.Placement = gpu.Placement(*d.Placement)
	}
	if d.Share != nil {
		u.Share = gpu.Share(*d.Share)
	}
	return u, err
}

// model returns a node of the lab from the catalog.
func model(on *lab.Node) gpu.Node {
	GinkgoHelper()
	machine, err := catalog.FindMachine(on.GPU())
	Expect(err).NotTo(HaveOccurred())
	n, err := machine.Node(on.Name())
	Expect(err).NotTo(HaveOccurred())
	return n
}

// shares is the default number of claims per shared GPU.
const shares = 10

// holdings are uses and their holders by the GPU's name.
type holdings map[string][]struct {
	gpu.Use
	who string
}

func (h holdings) add(gpuName, who string, use gpu.Use) {
	h[gpuName] = append(h[gpuName], struct {
		gpu.Use
		who string
	}{use, who})
}

// conflicts lists GPUs with more than one shape, double allocations, and allocations beyond the capacity.
func (h holdings) conflicts(n gpu.Node) []string {
	var found []string
	for _, g := range n.GPUs {
		occupancy := g.Empty(shares)
		for _, held := range h[g.Name()] {
			next, err := occupancy.Take(held.Use)
			if err != nil {
				found = append(found, fmt.Sprintf("%s on %s: %v", held.who, g.Name(), err))
				continue
			}
			occupancy = next
		}
	}
	return found
}

// allocations returns the allocations of a node in the API server.
func allocations(ctx context.Context, n gpu.Node) (holdings, error) {
	claims, err := c.Client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	held := holdings{}
	for _, claim := range claims.Items {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Pool != wire.PoolName(n.Name, driver) || ptr.Deref(result.AdminAccess, false) {
				continue
			}
			device, err := wire.Decode(result, n, wire.Options{Driver: driver})
			if err != nil {
				return nil, err
			}
			held.add(device.GPU, claim.Namespace+"/"+claim.Name, device.Use)
		}
	}
	return held, nil
}

// records returns the agent's records of a node, read from the node's disk.
func records(on *lab.Node) (holdings, error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(on.GPUFolder()), recordsDir, "*.json"))
	held := holdings{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		devices, err := recorded(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, d := range devices {
			if use, err := d.use(); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			} else if !d.Admin {
				held.add(d.GPU, filepath.Base(file), use)
			}
		}
	}
	return held, err
}

// strange lists GPUs of the hardware with two shapes, and instances without a record.
func strange(state fakegpu.State, n gpu.Node, held holdings) []string {
	var found []string
	for i, g := range state.GPUs {
		name := n.GPUs[i].Name()
		if len(g.Instances) > 0 && (g.TimeSlice != 0 || g.ComputeMode != fakegpu.ComputeDefault) {
			found = append(found, fmt.Sprintf("%s has instances, time slice %d, compute mode %d", name, g.TimeSlice, g.ComputeMode))
		}
		for _, instance := range g.Instances {
			recorded := false
			for _, h := range held[name] {
				recorded = recorded || h.Shape == gpu.MIG && h.Placement.Start == instance.Start && h.Placement.Profile == instance.Profile
			}
			if !recorded {
				found = append(found, fmt.Sprintf("%s has the instance %s at %d, which is on no record", name, instance.Name, instance.Start))
			}
		}
	}
	return found
}

// broken lists the current inconsistencies of a node. The sources are read one after the other, so that only an
// inconsistency in two consecutive results is real.
func broken(ctx context.Context, on *lab.Node, n gpu.Node) ([]string, error) {
	var before []string
	for {
		given, err := allocations(ctx, n)
		if err != nil {
			return nil, err
		}
		state, err := fakegpu.Read(on.GPUFolder())
		if err != nil {
			return nil, err
		}
		held, err := records(on)
		if err != nil {
			return nil, err
		}
		now := slices.Concat(given.conflicts(n), held.conflicts(n), strange(state, n, held))
		same := slices.DeleteFunc(slices.Clone(now), func(fault string) bool { return !slices.Contains(before, fault) })
		if len(now) == 0 || len(same) > 0 {
			return same, nil
		}
		before = now
		pause(ctx, 100*time.Millisecond)
	}
}

// pause delays the random actions. It waits for no condition.
func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// walker creates and deletes pods.
type walker struct {
	room
	random *rand.Rand
	// live are the names of the pods that were not deleted.
	live  []string
	made  int
	gpus  map[string][]string
	moves map[string]int
}

// wish returns the claim of a new pod, on one of few GPUs so that shapes compete.
func (w *walker) wish() *resourceapi.ResourceClaim {
	w.made++
	name := fmt.Sprintf("walk-%d", w.made)
	on := []string{"node1", "node2"}[w.random.IntN(2)]
	uuid := w.gpus[on][w.random.IntN(len(w.gpus[on]))]
	memory := fmt.Sprintf("%dGi", 1+w.random.IntN(20))
	switch kind := w.random.IntN(8); {
	case kind == 0:
		return claimOf(name, request("gpu", wholeClass, onGPU(uuid)))
	case kind == 1:
		return timed(name, uuid, []string{"Short", "Long"}[w.random.IntN(2)])
	case kind < 4:
		return claimOf(name, share(timeShareClass, uuid, memory, ""))
	case kind < 6 || on != "node1":
		return claimOf(name, share(mpsClass, uuid, memory, fmt.Sprint(5*w.random.IntN(10))))
	default:
		return claimOf(name, request("slice", migClass, onParent(uuid), profile([]string{oneSlice, twoSlices, threeSlices}[w.random.IntN(3)])))
	}
}

// come creates a claim and a pod.
func (w *walker) come(ctx context.Context) error {
	claim := w.wish()
	w.moves["came"]++
	w.live = append(w.live, claim.Name)
	return errors.Join(w.make(ctx, claim), w.tryCreate(ctx, podOf(claim.Name, stay(), claim.Name)))
}

// leave deletes a pod and its claim, half of the time without waiting for kubelet.
func (w *walker) leave(ctx context.Context) error {
	i := w.random.IntN(len(w.live))
	name := w.live[i]
	w.live = slices.Delete(w.live, i, i+1)
	grace := ptr.To(int64(w.random.IntN(2)))
	w.moves["left"]++
	if *grace == 0 {
		w.moves["were deleted by force"]++
	}
	err := w.Client.CoreV1().Pods(w.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(err, w.Client.ResourceV1().ResourceClaims(w.namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

// walkTime is the duration of the walk, walkPods the maximum number of pods.
const (
	walkTime = 75 * time.Second
	walkPods = 14
)

var _ = Describe("Pods of every shape that come and go at random", func() {
	It("never find a GPU in two shapes, or given away beyond what it has", func(ctx context.Context) {
		w := &walker{
			room: newRoom(ctx), gpus: map[string][]string{}, moves: map[string]int{},
			random: rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 2)), //nolint:gosec // a repeatable choice
		}
		models := map[string]gpu.Node{}
		for _, on := range c.Nodes() {
			models[on.Name()] = model(on)
		}
		w.gpus["node1"] = []string{models["node1"].GPUs[0].UUID, models["node1"].GPUs[1].UUID}
		for _, g := range models["node2"].GPUs {
			if g.Geometry == nil && len(w.gpus["node2"]) < 2 {
				w.gpus["node2"] = append(w.gpus["node2"], g.UUID)
			}
		}
		looks := 0
		for end := time.Now().Add(walkTime); time.Now().Before(end); looks++ {
			if len(w.live) < walkPods && (len(w.live) == 0 || w.random.IntN(5) < 3) {
				Expect(w.come(ctx)).To(Succeed())
			} else {
				Expect(w.leave(ctx)).To(Succeed())
			}
			for _, on := range c.Nodes() {
				faults, err := broken(ctx, on, models[on.Name()])
				Expect(err).NotTo(HaveOccurred())
				Expect(faults).To(BeEmpty(), "on %s, after %v", on.Name(), w.moves)
			}
			pause(ctx, time.Duration(w.random.IntN(400))*time.Millisecond)
		}
		GinkgoWriter.Printf("%v, %d looks\n", w.moves, looks)
		for len(w.live) > 0 {
			Expect(w.leave(ctx)).To(Succeed())
		}
		nothingLeft(ctx)
	}, atMost)
})
