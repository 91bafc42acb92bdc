package remediation

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/installer/controller/controllertest"
)

// TestAnotherPodOfTheSameNameHoldsNothing checks that a pod of the same name on another node does not count as the deleted consumer of a claim.
func TestAnotherPodOfTheSameNameHoldsNothing(t *testing.T) {
	device := controllertest.WholeGPU(t, "n", 0)
	node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
	node.Spec.Remediations = []v1alpha1.Remediation{{GPU: controllertest.GPU(t, "n", 0).Name(), ID: "i"}}
	for uid, want := range map[types.UID]int{"uid-of-web-0": 1, "another": 0} {
		web := controllertest.User("web-0", "n", device)
		web[0].SetUID(uid)
		h := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{node.DeepCopy()}, web...)
		gpus := decide(t, h, controllertest.Policies{}.Catalog(), node)
		if p := gpus[0]; len(p.victims) != want || len(p.Drain.Holders) != want {
			t.Errorf("with UID %s: victims %+v, holders %q, want %d", uid, p.victims, p.Drain.Holders, want)
		}
	}
}

// TestHoldersOfAGPU checks that the holders of a faulted GPU are determined from the published devices. While ResourceSlices are missing, claims count
// as in use and no pod is evicted.
func TestHoldersOfAGPU(t *testing.T) {
	g := controllertest.GPU(t, "n", 0)
	device := controllertest.WholeGPU(t, "n", 0)
	for name, test := range map[string]struct {
		lacks      bool
		holders    []string
		unreadable bool
	}{
		"all is published":         {holders: []string{"users/training"}},
		"a slice is not there yet": {lacks: true, unreadable: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))},
				append(controllertest.User("training", "n", device), controllertest.User("old", "n", "withdrawn")...)...)
			if test.lacks {
				if err := h.Delete(t.Context(), controllertest.ResourceSlices(t, "n")[0]); err != nil {
					t.Fatal(err)
				}
			}
			cat, node := controllertest.Policies{}.Catalog(), controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
			node.Spec.Remediations = []v1alpha1.Remediation{{GPU: g.Name(), ID: "i"}}
			gpus := decide(t, h, cat, node)
			if d := gpus[0].Drain; !slices.Equal(d.Holders, test.holders) || d.Unreadable != test.unreadable {
				t.Errorf("holders are %q, unreadable %t", d.Holders, d.Unreadable)
			}
			if victims := gpus[0].victims; len(victims) != len(test.holders) {
				t.Errorf("victims are %+v", victims)
			}
		})
	}
}

// TestRemediationDrainsDecideWhoLeaves checks that the drain settings of the remediation apply, and not those of an upgrade.
func TestRemediationDrainsDecideWhoLeaves(t *testing.T) {
	g := controllertest.GPU(t, "n", 0)
	device := controllertest.WholeGPU(t, "n", 0)
	alone, job := controllertest.User("alone", "n", device), controllertest.User("job", "n", device)
	alone[0].SetOwnerReferences(nil)
	job[0].SetLabels(map[string]string{"kind": "job"})
	scratch := controllertest.User("scratch", "n", device)
	scratch[0].(*corev1.Pod).Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, f := range []struct {
		field  string
		change func(*v1alpha1.DrainSpec)
		want   string
	}{
		{"defaults", func(*v1alpha1.DrainSpec) {}, "job scratch;"},
		{"force", func(d *v1alpha1.DrainSpec) { d.Force = true }, "alone job scratch;"},
		{"deleteEmptyDir", func(d *v1alpha1.DrainSpec) { d.DeleteEmptyDir = new(false) }, "job;"},
		{"waitFor", func(d *v1alpha1.DrainSpec) {
			d.WaitFor = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "job"}}
		}, "job scratch;users/job"},
	} {
		t.Run(f.field, func(t *testing.T) {
			var spec v1alpha1.ClusterPolicySpec
			f.change(&spec.Remediation.Drain)
			node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
			node.Spec.Remediations = []v1alpha1.Remediation{{GPU: g.Name(), ID: "i"}}
			h := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{node}, slices.Concat(alone, job, scratch)...)
			cat := controllertest.Policies{Spec: spec}.Catalog()
			gpus := decide(t, h, cat, node)
			var leave []string
			for _, v := range gpus[0].victims {
				leave = append(leave, v.Name)
			}
			if got := strings.Join(leave, " ") + ";" + strings.Join(gpus[0].Drain.Waited, " "); got != f.want {
				t.Errorf("evicted and waited for are %q, want %q", got, f.want)
			}
		})
	}
}

// TestDrainIsLimitedToWhatTheFaultNeeds checks which pods are evicted: those of a MIG device if only its processes must end, those of the GPU if all its
// processes must end or it must be reset, and none of another GPU, also if the faulty one is not published any more.
func TestDrainIsLimitedToWhatTheFaultNeeds(t *testing.T) {
	var slicesOfNode []resourceapi.ResourceSlice
	for _, object := range controllertest.ResourceSlices(t, "n") {
		if slice, ok := object.(*resourceapi.ResourceSlice); ok {
			slicesOfNode = append(slicesOfNode, *slice)
		}
	}
	var mig []string
	for _, device := range wire.Read(slicesOfNode)[0].GPUs[0].Devices {
		if device.Use.Shape == gpu.MIG {
			mig = append(mig, device.Name)
		}
	}
	if len(mig) < 2 {
		t.Fatalf("the MIG devices are %q", mig)
	}
	for name, test := range map[string]struct {
		remedy, device, gpu string
		want                []string
	}{
		"processes of a MIG device":       {remedy: "Restart", device: mig[0], want: []string{"users/first"}},
		"processes of the GPU":            {remedy: "Restart", want: []string{"users/first", "users/second"}},
		"a reset":                         {remedy: "Reset", want: []string{"users/first", "users/second"}},
		"a reset of an unpublished GPU":   {remedy: "Reset", gpu: "gpu-lost"},
		"processes of an unpublished GPU": {remedy: "Restart", gpu: "gpu-lost"},
	} {
		t.Run(name, func(t *testing.T) {
			fault := controllertest.XIDFault(t, "n", 0, 94, test.remedy)
			fault.Device = test.device
			if test.gpu != "" {
				fault.GPU = test.gpu
			}
			node := controllertest.FaultyNode("n", fault)
			node.Spec.Remediations = []v1alpha1.Remediation{{GPU: fault.GPU, ID: "i"}}
			users := slices.Concat(controllertest.User("first", "n", mig[0]), controllertest.User("second", "n", mig[1]),
				controllertest.User("third", "n", controllertest.WholeGPU(t, "n", 1)))
			h := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{node.DeepCopy()}, users...)
			g := decide(t, h, controllertest.Policies{}.Catalog(), node)[0]
			if !slices.Equal(g.Drain.Holders, test.want) || len(g.victims) != len(test.want) {
				t.Errorf("holders are %q, victims %+v, want %q", g.Drain.Holders, g.victims, test.want)
			}
		})
	}
}

// TestSuggestionListsPodsWithoutReadingThem checks that mode Suggest names the pods that would be evicted from the reservations of their claims, evicts
// none, and reads no pod from the API server.
func TestSuggestionListsPodsWithoutReadingThem(t *testing.T) {
	spec := v1alpha1.ClusterPolicySpec{Remediation: v1alpha1.RemediationSpec{Mode: v1alpha1.RemediationSuggest}}
	c := controllertest.NewCluster(t, spec, []*v1alpha1.GPUNode{controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))},
		controllertest.User("training", "n", controllertest.WholeGPU(t, "n", 0))...)
	reads := 0
	failRequests(c, func(_ string, object any, name string) bool {
		if _, is := object.(*corev1.Pod); is && name == "training" {
			reads++
		}
		return false
	})
	r, cat := newRemediator(t, c), controllertest.Policies{Spec: spec}.Catalog()
	list, err := reconcile(t, r, cat, "n")
	if err != nil || len(list) != 1 {
		t.Fatalf("got %+v, error %v", list, err)
	}
	if got := list[0]; got.Step != v1alpha1.RemediationStepSuggested || !strings.HasSuffix(got.Message, "1 pods would be evicted: users/training") {
		t.Errorf("got %+v", got)
	}
	if got := c.GPUNode("n").Spec.Remediations; len(got) > 0 || reads > 0 {
		t.Errorf("out of service are %+v, the pod was read %d times, want neither", got, reads)
	}
}

// TestReplacementBlocksTheDrain checks that a replacement of an evicted pod is named and not evicted: kube-scheduler places it on the GPU of its claim.
func TestReplacementBlocksTheDrain(t *testing.T) {
	g, now := controllertest.GPU(t, "n", 0), time.Now().Truncate(time.Second)
	began := metav1.NewTime(now.Add(-time.Minute))
	pod := controllertest.User("p", "n", controllertest.WholeGPU(t, "n", 0))
	pod[0].SetCreationTimestamp(metav1.NewTime(now))
	pod[1].SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
	for step, evicted := range map[v1alpha1.RemediationStep]int{v1alpha1.RemediationStepHold: 1, v1alpha1.RemediationStepDrain: 0} {
		node := controllertest.FaultyNode("n", controllertest.XIDFault(t, "n", 0, 95, "Reset"))
		node.Spec.Remediations = []v1alpha1.Remediation{{GPU: g.Name(), ID: "i"}}
		node.Status.Remediations = []v1alpha1.RemediationStatus{{GPU: g.Name(), ID: "i", Step: step, Since: began}}
		h := controllertest.NewCluster(t, v1alpha1.ClusterPolicySpec{}, []*v1alpha1.GPUNode{node}, pod...)
		got := decide(t, h, controllertest.Policies{}.Catalog(), node)[0]
		if len(got.victims) != evicted || len(got.Drain.Blocked) != 1-evicted || len(got.Drain.Holders) != 1 {
			t.Errorf("at step %s, the drain is %+v, victims are %+v", step, got.Drain, got.victims)
		}
	}
}
