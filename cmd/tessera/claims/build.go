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

// Build returns the claims on GPUs of the drivers: allocated ones with a device of such a driver, and pending ones that request a class whose selectors
// name one. When s.Classes is nil, all pending claims are included.
func Build(s cluster.State, drivers []string) List {
	b := builder{readings: s.Readings(), drivers: drivers, pods: map[string][]corev1.Pod{}}
	if s.Classes != nil {
		b.classes = []string{}
	}
	for _, class := range s.Classes {
		if selectsDriver(class, drivers) {
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
		if b.includes(claim) {
			list.Items = append(list.Items, b.buildClaim(claim))
		}
	}
	slices.SortFunc(list.Items, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// builder holds what Build looks up for each claim.
type builder struct {
	readings []wire.Reading
	drivers  []string
	// classes are the names of the classes of the drivers; nil when classes could not be listed.
	classes []string
	// pods are the pods of each claim, by the claim's namespace/name.
	pods map[string][]corev1.Pod
}

// selectsDriver reports whether a selector of the class contains the name of one of the drivers. The classes of Tessera and of NVIDIA's DRA driver all do.
func selectsDriver(class resourceapi.DeviceClass, drivers []string) bool {
	return slices.ContainsFunc(class.Spec.Selectors, func(s resourceapi.DeviceSelector) bool {
		return s.CEL != nil && slices.ContainsFunc(drivers, func(driver string) bool {
			return strings.Contains(s.CEL.Expression, `"`+driver+`"`) || strings.Contains(s.CEL.Expression, "'"+driver+"'")
		})
	})
}

// includes reports whether the claim is on GPUs.
func (b builder) includes(claim resourceapi.ResourceClaim) bool {
	if a := claim.Status.Allocation; a != nil {
		return slices.ContainsFunc(a.Devices.Results, b.isOurs)
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

func (b builder) isOurs(result resourceapi.DeviceRequestAllocationResult) bool {
	return slices.Contains(b.drivers, result.Driver)
}

// buildClaim returns the claim with its pods, devices and state.
func (b builder) buildClaim(claim resourceapi.ResourceClaim) Claim {
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
			if b.isOurs(result) {
				var node string
				var d Device
				node, d = b.buildDevice(result)
				c.Node = cmp.Or(c.Node, node)
				c.Devices = append(c.Devices, d)
			}
		}
	}
	c.State, c.Reason = claimState(claim, pods)
	return c
}

// buildDevice returns an allocated device and its node. A device that is no longer published has only a name.
func (b builder) buildDevice(result resourceapi.DeviceRequestAllocationResult) (node string, d Device) {
	d = Device{Name: result.Device, AdminAccess: result.AdminAccess != nil && *result.AdminAccess}
	for _, r := range b.readings {
		if !r.Has(result) {
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
		d.Shape, d.Index, d.Part = decoded.Shape.String(), &g.GPU.Index, devicePart(g, decoded)
	}
	return node, d
}

// devicePart returns the part of the GPU that the device is: its profile or its share; empty for the whole GPU.
func devicePart(g wire.PublishedGPU, d gpu.Device) string {
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

// claimState returns the state of the claim and why it is not in use.
func claimState(claim resourceapi.ResourceClaim, pods []corev1.Pod) (State, string) {
	running := slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	refusal, prepared := preparation(claim)
	switch {
	case claim.DeletionTimestamp != nil:
		return Deleting, waitingReason(pods, "waiting for its pods to end")
	case claim.Status.Allocation == nil:
		return Pending, schedulingReason(pods)
	case refusal != "":
		return Failed, refusal
	case running:
		return InUse, ""
	case len(claim.Status.ReservedFor) == 0:
		return Allocated, "reserved for no pod"
	case prepared:
		return Ready, waitingReason(pods, "")
	}
	return Preparing, waitingReason(pods, "")
}

// preparation returns the reason of the first device whose condition Ready is False, and whether all devices are Ready.
func preparation(claim resourceapi.ResourceClaim) (refusal string, prepared bool) {
	ready := 0
	for _, status := range claim.Status.Devices {
		for _, c := range status.Conditions {
			switch {
			case c.Type != cluster.Ready:
			case c.Status == metav1.ConditionTrue:
				ready++
			case c.Status == metav1.ConditionFalse:
				return cluster.ConditionText(c), false
			}
		}
	}
	return "", claim.Status.Allocation != nil && ready > 0 && ready >= len(claim.Status.Allocation.Devices.Results)
}

// schedulingReason returns the scheduler's message about the first unschedulable pod of the claim.
func schedulingReason(pods []corev1.Pod) string {
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
	return "waiting for the scheduler"
}

// waitingReason returns the reason and message of the first waiting container, fallback without one.
func waitingReason(pods []corev1.Pod, fallback string) string {
	for _, p := range pods {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil {
				return oneLine(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			}
		}
	}
	return fallback
}

// oneLine replaces all white space by single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
