package claims

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// Build returns the claims of the state that are on GPUs of the drivers: those that hold a device of one,
// and those that wait for a class whose selectors name one. Without classes nobody knows what a claim waits
// for, and all count.
func Build(s cluster.State, drivers []string) List {
	b := builder{readings: s.Readings(), drivers: drivers, pods: map[string][]corev1.Pod{}}
	if s.Classes != nil {
		b.classes = []string{}
	}
	for _, class := range s.Classes {
		if ours(class, drivers) {
			b.classes = append(b.classes, class.Name)
		}
	}
	for _, p := range s.Pods {
		for _, name := range cluster.ClaimNames(p) {
			b.pods[p.Namespace+"/"+name] = append(b.pods[p.Namespace+"/"+name], p)
		}
	}
	list := List{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Items: []Claim{}}
	for _, claim := range s.Claims {
		if b.concerns(claim) {
			list.Items = append(list.Items, b.claim(claim))
		}
	}
	slices.SortFunc(list.Items, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

type builder struct {
	readings []wire.Reading
	drivers  []string
	// classes are the names of the classes of the drivers; nil when no class is known at all.
	classes []string
	// pods are the pods of each claim, by namespace/name of the claim.
	pods map[string][]corev1.Pod
}

// ours reports whether a selector of the class names one of the drivers, as every class of Tessera's and
// of NVIDIA's does.
func ours(class resourceapi.DeviceClass, drivers []string) bool {
	return slices.ContainsFunc(class.Spec.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && slices.ContainsFunc(drivers, func(driver string) bool {
			return strings.Contains(s.CEL.Expression, `"`+driver+`"`) || strings.Contains(s.CEL.Expression, "'"+driver+"'")
		})
	})
}

// concerns reports whether the claim is on GPUs.
func (b builder) concerns(claim resourceapi.ResourceClaim) bool {
	if a := claim.Status.Allocation; a != nil {
		return slices.ContainsFunc(a.Devices.Results, b.mine)
	}
	return b.classes == nil || slices.ContainsFunc(claim.Spec.Devices.Requests, func(r resourceapi.DeviceRequest) bool {
		if r.Exactly != nil && slices.Contains(b.classes, r.Exactly.DeviceClassName) {
			return true
		}
		return slices.ContainsFunc(r.FirstAvailable, func(sub resourceapi.DeviceSubRequest) bool {
			return slices.Contains(b.classes, sub.DeviceClassName)
		})
	})
}

func (b builder) mine(result resourceapi.DeviceRequestAllocationResult) bool {
	return slices.Contains(b.drivers, result.Driver)
}

func (b builder) claim(claim resourceapi.ResourceClaim) Claim {
	c := Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID), Pods: []string{}, Devices: []Device{}}
	pods := b.pods[claim.Namespace+"/"+claim.Name]
	for _, by := range claim.Status.ReservedFor {
		name := by.Name
		if by.Resource != "pods" {
			name = by.Resource + "/" + by.Name
		}
		c.Pods = append(c.Pods, name)
	}
	for _, p := range pods {
		c.Pods = append(c.Pods, p.Name)
	}
	slices.Sort(c.Pods)
	c.Pods = slices.Compact(c.Pods)
	if claim.Status.Allocation != nil {
		for _, result := range claim.Status.Allocation.Devices.Results {
			if b.mine(result) {
				var node string
				var d Device
				node, d = b.device(result)
				c.Node = cmp.Or(c.Node, node)
				c.Devices = append(c.Devices, d)
			}
		}
	}
	c.State, c.Reason = judge(claim, pods)
	return c
}

// device describes an allocated device; one that is not published any more has only its name.
func (b builder) device(result resourceapi.DeviceRequestAllocationResult) (node string, d Device) {
	d = Device{Name: result.Device, AdminAccess: result.AdminAccess != nil && *result.AdminAccess}
	for _, r := range b.readings {
		if r.Driver != result.Driver || r.Pool != result.Pool {
			continue
		}
		node = r.Node
		g, _, err := r.Find(result.Device)
		if err != nil {
			continue
		}
		decoded, err := r.Decode(result)
		if err != nil {
			continue
		}
		d.Shape, d.Index, d.What = decoded.Shape.String(), &g.GPU.Index, what(g, decoded)
	}
	return node, d
}

// what says how much of the GPU the device is.
func what(g wire.PublishedGPU, d gpu.Device) string {
	switch {
	case d.Shape == gpu.MIG:
		profile, _ := g.GPU.Geometry.Profile(d.Placement.Profile)
		return profile.Name
	case d.Shape.Shared():
		text := fmt.Sprintf("%dGi", d.Share.MemoryBytes>>30)
		if d.Share.Compute > 0 {
			text += fmt.Sprintf(" %d%%", d.Share.Compute)
		}
		return text
	}
	return ""
}

// judge says how far the claim has come, and why it is not in use.
func judge(claim resourceapi.ResourceClaim, pods []corev1.Pod) (State, string) {
	running := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	refusal, prepared := reported(claim)
	switch {
	case claim.DeletionTimestamp != nil:
		return Deleting, waiting(pods, "waits for its pods to end")
	case claim.Status.Allocation == nil:
		return Pending, unscheduled(pods)
	case refusal != "":
		return Failed, refusal
	case running:
		return InUse, ""
	case len(claim.Status.ReservedFor) == 0:
		return Allocated, "reserved for no pod"
	case prepared:
		return Ready, waiting(pods, "")
	}
	return Preparing, waiting(pods, "")
}

// reported returns why the agent says a device is not ready, and whether it says of all that they are.
func reported(claim resourceapi.ResourceClaim) (refusal string, prepared bool) {
	ready := 0
	for _, status := range claim.Status.Devices {
		for _, c := range status.Conditions {
			switch {
			case c.Type != cluster.Ready:
			case c.Status == metav1.ConditionTrue:
				ready++
			case c.Status == metav1.ConditionFalse:
				return cluster.Reason(c), false
			}
		}
	}
	return "", claim.Status.Allocation != nil && ready > 0 && ready >= len(claim.Status.Allocation.Devices.Results)
}

// unscheduled returns what the scheduler says of the pods that wait for the claim.
func unscheduled(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "no pod uses it"
	}
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return oneLine(cmp.Or(c.Message, c.Reason))
			}
		}
	}
	return "waits for the scheduler"
}

// waiting returns what the first container that waits is waiting for, or otherwise.
func waiting(pods []corev1.Pod, otherwise string) string {
	for _, p := range pods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil {
				return oneLine(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			}
		}
	}
	return otherwise
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
