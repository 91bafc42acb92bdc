package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// The tests of this file show what single fields of ClusterPolicy and NVIDIADriver do to nodes; installer/render has the list of all fields and names them.

// policies are what an administrator writes: a policy, and a driver for the nodes of the pool gpu.
type policies struct {
	spec   v1alpha1.ClusterPolicySpec
	driver v1alpha1.NVIDIADriverSpec
}

// catalog is what the installer makes of them.
func (p policies) catalog() *Catalog {
	c := &Catalog{Policy: &v1alpha1.ClusterPolicy{Spec: p.spec.Complete()}, known: map[driverKey]RenderedDriver{}}
	p.driver.DriverSpec = p.driver.Complete()
	c.Drivers = []v1alpha1.NVIDIADriver{{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: p.driver}}
	return c
}

// inPool selects the nodes of a pool.
func inPool(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}}
}

func node(pool string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"pool": pool}}}
}

// next is what becomes of a bare node of a pool whose host has a driver of this version.
func next(c *Catalog, pool, hostDriver string) phase.Decision {
	hardware := &v1alpha1.HardwareStatus{BootID: "b", GPUs: 1, OS: "ubuntu24.04", Kernel: "6.8", HostDriver: hostDriver}
	return phase.Next(phase.Observed{
		Now: time.Unix(0, 0), Wanted: c.Wanted(c.Assign(node(pool)), hardware), Status: v1alpha1.GPUNodeStatus{Hardware: hardware},
		Node: phase.Node{Exists: true, Ready: true, BootID: "b"},
	})
}

func TestFieldsDecideAboutNodes(t *testing.T) {
	off, on := v1alpha1.Component{Enabled: new(false)}, v1alpha1.Component{Enabled: new(true)}
	minute := &metav1.Duration{Duration: time.Minute}
	wanted := func(pool string, of func(phase.Wanted) any) func(*Catalog) any {
		return func(c *Catalog) any { return of(c.Wanted(c.Assign(node(pool)), nil)) }
	}
	for _, f := range []struct {
		field  string
		change func(*policies)
		look   func(*Catalog) any
		want   any
	}{
		{"spec.driver.enabled", func(p *policies) { p.spec.Driver.Enabled = off.Enabled }, wanted("", func(w phase.Wanted) any { return w.Driver }), false},
		{"spec.driver.hostDriver", func(p *policies) { p.spec.Driver.HostDriver = v1alpha1.HostDriverRefuse },
			func(c *Catalog) any { return next(c, "", "550.1").Reason }, phase.ReasonHostDriverRefused},
		{"spec.driver.minVersion", func(p *policies) { p.spec.Driver.MinVersion = "560" },
			func(c *Catalog) any { return next(c, "", "550.1").Reason }, phase.ReasonHostDriverTooOld},
		{"spec.nodeAgent.pools[].nodeSelector", func(p *policies) { p.spec.NodeAgent.Pools[0].NodeSelector = *inPool("gpu") },
			func(c *Catalog) any { return c.Assign(node("gpu")).AgentPool }, "mig"},
		{"spec.nodeAgent.pools[].migMode", func(p *policies) { p.spec.NodeAgent.Pools[0].MIGMode = v1alpha1.MIGEnabled },
			wanted("mig", func(w phase.Wanted) any { return w.MIGMode }), v1alpha1.MIGEnabled},
		{"spec.sandboxWorkloads.nodeSelector", func(p *policies) { p.spec.SandboxWorkloads.NodeSelector = inPool("gpu") },
			wanted("gpu", func(w phase.Wanted) any { return w.Sandbox && !w.Driver }), true},
		{"spec.vgpuManager.enabled", func(p *policies) { p.spec.VGPUManager.Component = off },
			func(c *Catalog) any { return c.Assign(node("vgpu")).VGPU }, false},
		{"spec.vgpuManager.nodeSelector", func(p *policies) { p.spec.VGPUManager.NodeSelector = inPool("gpu") },
			func(c *Catalog) any { return c.Assign(node("gpu")).VGPU }, true},
		{"spec.validator.enabled", func(p *policies) { p.spec.Validator.Component = off }, wanted("", func(w phase.Wanted) any { return w.Validator }), false},
		{"spec.upgrade.drain.timeout", func(p *policies) { p.spec.Upgrade.Drain.Timeout = minute },
			wanted("", func(w phase.Wanted) any { return w.Upgrade.DrainTimeout }), time.Minute},
		{"spec.upgrade.drain.waitTimeout", func(p *policies) { p.spec.Upgrade.Drain.WaitTimeout = minute },
			wanted("", func(w phase.Wanted) any { return w.Upgrade.WaitTimeout }), time.Minute},

		{"NVIDIADriver spec.enabled", func(p *policies) { p.driver.Enabled = off.Enabled }, wanted("gpu", func(w phase.Wanted) any { return w.Driver }), false},
		{"NVIDIADriver spec.hostDriver", func(p *policies) { p.driver.HostDriver = v1alpha1.HostDriverRefuse },
			func(c *Catalog) any { return next(c, "gpu", "550.1").Reason }, phase.ReasonHostDriverRefused},
		{"NVIDIADriver spec.minVersion", func(p *policies) { p.driver.MinVersion = "560" },
			func(c *Catalog) any { return next(c, "gpu", "550.1").Reason }, phase.ReasonHostDriverTooOld},
		{"NVIDIADriver spec.nodeSelector", func(p *policies) { p.driver.NodeSelector = inPool("other") },
			func(c *Catalog) any { return c.Assign(node("other")).Owner }, "own"},
		{"NVIDIADriver spec.default", func(p *policies) { p.driver.NodeSelector, p.driver.Default = nil, true },
			func(c *Catalog) any { return c.Assign(node("other")).Owner }, "own"},
		{"NVIDIADriver spec.upgrade.drain.timeout", func(p *policies) {
			p.driver.Upgrade = &v1alpha1.UpgradePolicy{Drain: v1alpha1.DrainSpec{Timeout: minute}}
		},
			wanted("gpu", func(w phase.Wanted) any { return w.Upgrade.DrainTimeout }), time.Minute},
	} {
		t.Run(f.field, func(t *testing.T) {
			p := policies{driver: v1alpha1.NVIDIADriverSpec{NodeSelector: inPool("gpu")}}
			p.spec.NodeAgent.Pools = []v1alpha1.NodePool{{Name: "mig", NodeSelector: *inPool("mig")}}
			p.spec.SandboxWorkloads = v1alpha1.SandboxWorkloadsSpec{Enabled: true, NodeSelector: inPool("vm")}
			p.spec.VGPUManager = v1alpha1.VGPUManagerSpec{Component: on, NodeSelector: inPool("vgpu")}
			if before := f.look(p.catalog()); before == f.want {
				t.Fatalf("it is %v before the change, too", before)
			}
			f.change(&p)
			if after := f.look(p.catalog()); after != f.want {
				t.Errorf("got %v, want %v", after, f.want)
			}
		})
	}
}

// pods answers reads of pods.
type pods struct {
	client.Reader
	all []corev1.Pod
}

func (p pods) Get(_ context.Context, key types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	for _, pod := range p.all {
		if pod.Name == key.Name {
			pod.DeepCopyInto(object.(*corev1.Pod))
			return nil
		}
	}
	return fmt.Errorf("no pod %s", key)
}

func TestDrainFieldsDecideWhoLeaves(t *testing.T) {
	owner := []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: new(true)}}
	all := pods{all: []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "alone"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: owner, Labels: map[string]string{"kind": "job"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "scratch", OwnerReferences: owner}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}}},
	}}
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}}
	for _, pod := range all.all {
		key := types.NamespacedName{Name: pod.Name}
		u.Pods, u.UIDs[key] = append(u.Pods, key), []types.UID{pod.UID}
	}
	for _, f := range []struct {
		field                    string
		change                   func(*v1alpha1.DrainSpec)
		leave, waited, stayBlock string
	}{
		{"defaults", func(*v1alpha1.DrainSpec) {}, "owned scratch", "", "/alone"},
		{"force", func(d *v1alpha1.DrainSpec) { d.Force = true }, "alone owned scratch", "", ""},
		{"deleteEmptyDir", func(d *v1alpha1.DrainSpec) { d.DeleteEmptyDir = new(false) }, "owned", "", "/alone /scratch"},
		{"waitFor", func(d *v1alpha1.DrainSpec) {
			d.WaitFor = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "job"}}
		},
			"owned scratch", "/owned", "/alone"},
	} {
		t.Run(f.field, func(t *testing.T) {
			upgrade := v1alpha1.UpgradePolicy{}.Complete()
			f.change(&upgrade.Drain)
			drain, victims := drainer{live: all, refused: newRefusedEvictions()}.look(t.Context(), u, upgrade.Drain)
			var leave, blocked []string
			for _, v := range victims {
				leave = append(leave, v.Name)
			}
			for _, b := range drain.Blocked {
				blocked = append(blocked, b.Name)
			}
			got := [3]string{strings.Join(leave, " "), strings.Join(drain.Waited, " "), strings.Join(blocked, " ")}
			if want := [3]string{f.leave, f.waited, f.stayBlock}; got != want {
				t.Errorf("evicted, waited for, staying: got %q, want %q", got, want)
			}
		})
	}
}

// writes records what is written.
type writes struct {
	client.Client
	all []string
}

func (w *writes) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	w.all = append(w.all, string(data))
	return err
}

func (w *writes) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	text, err := json.Marshal(object)
	w.all = append(w.all, string(text))
	return err
}

// Get answers for the namespace: claims in it may ask for admin access already.
func (w *writes) Get(_ context.Context, _ types.NamespacedName, object client.Object, _ ...client.GetOption) error {
	object.SetLabels(map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"})
	return nil
}

func TestFieldsDecideWhatIsWrittenOnNodes(t *testing.T) {
	for _, f := range []struct {
		field         string
		change        func(*v1alpha1.ClusterPolicySpec)
		before, after string
	}{
		{"featureLabels.enabled", func(s *v1alpha1.ClusterPolicySpec) { s.FeatureLabels.Enabled = new(false) }, "nvidia.com/gpu.product", "nvidia.com/gpu.present"},
		{"readinessTaint", func(s *v1alpha1.ClusterPolicySpec) { s.ReadinessTaint = true }, "nvidia.com/gpu.product", v1alpha1.TaintNotReady},
	} {
		t.Run(f.field, func(t *testing.T) {
			written := func(p policies) string {
				w := &writes{}
				r := &nodeReconciler{Cluster: action.Cluster{Client: w, Live: w, Namespace: "tessera-system"}}
				gpunode := &v1alpha1.GPUNode{}
				gpunode.Status.Hardware = &v1alpha1.HardwareStatus{GPUs: 1}
				gpunode.Status.Agent = &v1alpha1.AgentStatus{GPUs: 1, Product: "NVIDIA-H100"}
				c, n := p.catalog(), node("")
				if err := r.updateNodeMarks(t.Context(), c, &nodeObservation{GPUNode: gpunode, KubeNode: n, Assignment: c.Assign(n)}, phase.Decision{}); err != nil {
					t.Fatal(err)
				}
				return strings.Join(w.all, "\n")
			}
			var p policies
			before := written(p)
			f.change(&p.spec)
			after := written(p)
			if !strings.Contains(before, f.before) || !strings.Contains(after, f.after) || before == after {
				t.Errorf("wrote %s, and with the field %s", before, after)
			}
		})
	}
}

func TestValidatorFieldsDecideWhatIsProven(t *testing.T) {
	proven := func(p policies) int {
		w := &writes{}
		r := &nodeReconciler{Cluster: action.Cluster{Client: w, Live: w, Namespace: "tessera-system"}}
		gpunode := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		gpunode.Status.Agent = &v1alpha1.AgentStatus{GPUs: 1, MIGCapable: true}
		s := &nodeObservation{GPUNode: gpunode, Assignment: p.catalog().Assign(node(""))}
		s.Status = gpunode.Status
		if err := r.createNodeValidation(t.Context(), p.catalog(), s); err != nil {
			t.Fatal(err)
		}
		return len(w.all)
	}
	var p policies
	both := proven(p)
	p.spec.Validator.MIG = new(false)
	if one := proven(p); both != 4 || one != 2 {
		t.Errorf("%d objects with a slice and %d without, want a claim and a pod for each part", both, one)
	}
}
