package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/phase"
)

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
			drain, victims := (&Drainer{live: all, refused: newRefusedEvictions()}).Inspect(t.Context(), u, upgrade.Drain, time.Time{}, time.Now())
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

// A pod that was created after the drain began, for a claim from before, replaces an evicted pod. Those of the settling time are evicted after it, later ones
// block the drain.
func TestReplacements(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	owner := []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}}
	created := map[string]struct{ pod, claim time.Duration }{
		"evicted":     {pod: -time.Hour, claim: -time.Hour},
		"first":       {pod: time.Second, claim: -time.Hour},
		"replacement": {pod: settling, claim: -time.Hour},
		"same-second": {pod: 0, claim: -time.Hour},
		"template":    {pod: time.Second, claim: time.Second}, // allocated before the taint took effect
	}
	var all pods
	u := Users{UIDs: map[types.NamespacedName][]types.UID{}, Claimed: map[types.NamespacedName]time.Time{}}
	for _, name := range slices.Sorted(maps.Keys(created)) {
		key := types.NamespacedName{Name: name}
		all.all = append(all.all, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner, CreationTimestamp: metav1.NewTime(began.Add(created[name].pod))}})
		u.Pods, u.UIDs[key], u.Claimed[key] = append(u.Pods, key), []types.UID{""}, began.Add(created[name].claim)
	}
	for name, test := range map[string]struct {
		began, now   time.Time
		leave, block string
	}{
		"cordoned node":  {time.Time{}, began, "evicted first replacement same-second template", ""},
		"settling":       {began, began.Add(settling - time.Second), "evicted same-second template", "/replacement"},
		"after settling": {began, began.Add(settling), "evicted first same-second template", "/replacement"},
	} {
		t.Run(name, func(t *testing.T) {
			drain, victims := (&Drainer{live: all, refused: newRefusedEvictions()}).Inspect(t.Context(), u, v1alpha1.DrainSpec{}, test.began, test.now)
			var leave []string
			for _, v := range victims {
				leave = append(leave, v.Name)
			}
			if got := strings.Join(leave, " "); got != test.leave || len(drain.Holders) != len(created) || len(drain.Staying) > 0 {
				t.Errorf("evicts %q, want %q; %+v", got, test.leave, drain)
			}
			want := []phase.BlockedPod{{Name: test.block, Reason: replaces}}
			if test.block == "" {
				want = nil
			}
			if !slices.Equal(drain.Blocked, want) {
				t.Errorf("blocked by %v, want %v", drain.Blocked, want)
			}
		})
	}
}
