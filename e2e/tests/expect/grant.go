package expect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// Grant is one allocated device as the ResourceSlices describe it.
type Grant struct {
	Node, Driver, Pool, Device string
	// ShareID tells several shares of one device apart; Share is what this one takes of it. Both are
	// empty for a device that is not shared.
	ShareID string
	Share   Share
	// Shape is the attribute type: gpu, mig, …; empty when no slice has the device any more.
	Shape string
	// UUID is the GPU's, or, for a MIG device, its own as far as the claim's status tells; Parent is the
	// GPU's that carries a MIG device.
	UUID, Parent string
	// Profile and Multiprocessors describe a MIG device.
	Profile         string
	Multiprocessors int64
	// Memory is in bytes.
	Memory int64
	// TimeSlice is the time-slice class in effect, where the claim wished one and as far as its status
	// tells.
	TimeSlice string
	// Attributes are all attributes by their full name, as text.
	Attributes map[string]string
}

// Share is what a claim takes of a shared GPU: Memory in bytes and, where that is limited, Compute in
// percent of the multiprocessors.
type Share struct{ Memory, Compute int64 }

// The shapes that are compared otherwise than a whole GPU.
const (
	mig     = "mig"
	mps     = "mps"
	monitor = "monitor"
)

// String returns pool and device.
func (g Grant) String() string { return g.Pool + "/" + g.Device }

// Label returns the device's name and what is taken of it, for people.
func (g Grant) Label() string {
	text := g.Device
	if g.Share.Memory > 0 {
		text += fmt.Sprintf(", %s", resource.NewQuantity(g.Share.Memory, resource.BinarySI))
	}
	if g.Share.Compute > 0 {
		text += fmt.Sprintf(", %d %%", g.Share.Compute)
	}
	if g.TimeSlice != "" {
		text += ", time slice " + g.TimeSlice
	}
	return text
}

// podClaim is one claim of a pod: the pod's own name for it, and the claim, which is nil until it exists.
type podClaim struct {
	name  string
	claim *resourceapi.ResourceClaim
}

// grants returns the devices of each container.
func grants(pod *corev1.Pod, claims []podClaim, published []*resourceapi.ResourceSlice) map[string][]Grant {
	given := map[string][]Grant{}
	for container, uses := range claimUses(pod) {
		for _, use := range uses {
			for _, claim := range claims {
				if claim.name == use.claim {
					given[container] = append(given[container], use.grants(claim.claim, pod.Spec.NodeName, published)...)
				}
			}
		}
	}
	return given
}

// use is a container's use of a claim, or of one request of it.
type use struct{ claim, request string }

// covers reports whether the use includes the request of a result, which is request or
// request/subrequest.
func (u use) covers(request string) bool {
	return u.request == "" || u.request == request || strings.HasPrefix(request, u.request+"/")
}

// grants returns what the use gets of the claim.
func (u use) grants(claim *resourceapi.ResourceClaim, node string, published []*resourceapi.ResourceSlice) []Grant {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	var given []Grant
	for _, result := range claim.Status.Allocation.Devices.Results {
		if u.covers(result.Request) {
			grant := describe(result, published)
			grant.Node = node
			grant.take(result)
			grant.fill(claim.Status.Devices)
			given = append(given, grant)
		}
	}
	return given
}

// extendedClaim stands for the pod's name of the claim that was made for its extended resources, which
// has none.
const extendedClaim = ""

// claimUses returns, by container, which of the pod's claims it uses: those that it names, and the one
// that was made for its extended resources.
func claimUses(pod *corev1.Pod) map[string][]use {
	uses := map[string][]use{}
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Resources.Claims {
			uses[container.Name] = append(uses[container.Name], use{claim: named.Name, request: named.Request})
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		for _, mapping := range extended.RequestMappings {
			uses[mapping.ContainerName] = append(uses[mapping.ContainerName], use{claim: extendedClaim, request: mapping.RequestName})
		}
	}
	return uses
}

// describe looks an allocated device up in the newest generation of its pool.
func describe(result resourceapi.DeviceRequestAllocationResult, published []*resourceapi.ResourceSlice) Grant {
	grant := Grant{Driver: result.Driver, Pool: result.Pool, Device: result.Device}
	newest := int64(-1)
	for _, slice := range published {
		pool := slice.Spec.Pool
		if slice.Spec.Driver != result.Driver || pool.Name != result.Pool || pool.Generation < newest {
			continue
		}
		i := slices.IndexFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == result.Device })
		if i < 0 {
			continue
		}
		newest = pool.Generation
		grant.read(slice.Spec.Devices[i])
	}
	return grant
}

// read takes over what the slice says about the device.
func (g *Grant) read(device resourceapi.Device) {
	g.Attributes = map[string]string{}
	for name, value := range device.Attributes {
		g.Attributes[qualified(string(name), g.Driver)] = attributeText(value)
	}
	g.Shape = g.Attributes[qualified("type", g.Driver)]
	g.UUID = g.Attributes[qualified("uuid", g.Driver)]
	g.Parent = g.Attributes[qualified("parentUUID", g.Driver)]
	g.Profile = g.Attributes[qualified("profile", g.Driver)]
	for name, capacity := range device.Capacity {
		switch qualified(string(name), g.Driver) {
		case qualified("multiprocessors", g.Driver):
			g.Multiprocessors = capacity.Value.Value()
		case qualified("memory", g.Driver):
			g.Memory = capacity.Value.Value()
		}
	}
}

// take takes over what the allocation took of a shared device.
func (g *Grant) take(result resourceapi.DeviceRequestAllocationResult) {
	if result.ShareID == nil {
		return
	}
	g.ShareID = string(*result.ShareID)
	for name, taken := range result.ConsumedCapacity {
		switch qualified(string(name), g.Driver) {
		case qualified("memory", g.Driver):
			g.Share.Memory = taken.Value()
		case qualified("compute", g.Driver):
			g.Share.Compute = taken.Value()
		}
	}
}

// fill takes over what the agent reported for the device in the claim's status.
func (g *Grant) fill(reported []resourceapi.AllocatedDeviceStatus) {
	for _, status := range reported {
		if status.Driver != g.Driver || status.Pool != g.Pool || status.Device != g.Device || ptr.Deref(status.ShareID, "") != g.ShareID || status.Data == nil {
			continue
		}
		var data struct {
			UUID      string `json:"uuid"`
			TimeSlice struct {
				Interval string `json:"interval"`
			} `json:"timeSlice"`
		}
		if err := json.Unmarshal(status.Data.Raw, &data); err == nil && data.UUID != "" {
			g.UUID, g.TimeSlice = data.UUID, data.TimeSlice.Interval
		}
	}
}

// qualified returns an attribute's full name: a bare name is of the driver's domain.
func qualified(name, driver string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return driver + "/" + name
}

func attributeText(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	case a.BoolValue != nil:
		return fmt.Sprint(*a.BoolValue)
	case a.VersionValue != nil:
		return *a.VersionValue
	}
	return ""
}
