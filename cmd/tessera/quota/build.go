package quota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
)

// The type of the list in JSON and YAML.
const (
	APIVersion = "tessera.dev/v1alpha1"
	Kind       = "GPUQuotaList"
)

// List is the output of the verb.
type List struct {
	metav1.TypeMeta `json:",inline"`
	// Items are the namespaces with allocated GPUs or limits, by name.
	Items []Namespace `json:"items"`
}

// Namespace is the use of GPUs by the claims of a namespace, and its limits. Monitors, which take no capacity, are not counted.
type Namespace struct {
	Namespace string `json:"namespace"`
	// GPUs counts whole GPUs, MIGDevices counts MIG devices, Shares counts shares of time-shared GPUs and of those with MPS.
	GPUs       int `json:"gpus"`
	MIGDevices int `json:"migDevices"`
	Shares     int `json:"shares"`
	// MemoryBytes is the memory of these devices.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Limits are those of the namespace's ResourceQuotas.
	Limits []Limit `json:"limits,omitempty"`
}

// Limit is a limit on claims or devices in a ResourceQuota.
type Limit struct {
	// Quota is the name of the ResourceQuota, Resource that of the limited resource.
	Quota    string `json:"quota"`
	Resource string `json:"resource"`
	// Used and Hard are quantities. ResourceQuotas count requested devices, also those of claims without an allocation.
	Used string `json:"used"`
	Hard string `json:"hard"`
}

// build returns the use of the GPUs by namespace.
func build(list []gpus.GPU, quotas []corev1.ResourceQuota) List {
	found := map[string]*Namespace{}
	at := func(name string) *Namespace {
		if found[name] == nil {
			found[name] = &Namespace{Namespace: name}
		}
		return found[name]
	}
	for _, g := range list {
		for _, h := range g.Holders {
			n := at(h.Claim.Namespace)
			switch {
			case h.Start != nil:
				n.MIGDevices++
				n.MemoryBytes += h.MemoryBytes
			case h.Shares > 0:
				n.Shares += h.Shares
				n.MemoryBytes += h.MemoryBytes
			default:
				n.GPUs++
				n.MemoryBytes += g.MemoryBytes
			}
		}
	}
	for _, q := range quotas {
		if limits := limitsOf(q); len(limits) > 0 {
			at(q.Namespace).Limits = append(at(q.Namespace).Limits, limits...)
		}
	}
	result := List{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Items: []Namespace{}}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		result.Items = append(result.Items, *found[name])
	}
	return result
}

// limitsOf returns the limits of the ResourceQuota on claims and devices, by resource.
func limitsOf(q corev1.ResourceQuota) []Limit {
	var limits []Limit
	for _, resource := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		if !concernsGPUs(string(resource)) {
			continue
		}
		hard, used := q.Spec.Hard[resource], q.Status.Used[resource]
		limits = append(limits, Limit{Quota: q.Name, Resource: string(resource), Used: used.String(), Hard: hard.String()})
	}
	return limits
}

// concernsGPUs reports whether the resource is that of a DeviceClass, of claims, or an extended resource of NVIDIA.
func concernsGPUs(resource string) bool {
	return strings.HasSuffix(resource, corev1.ResourceClaimsPerClass) ||
		resource == "count/resourceclaims.resource.k8s.io" || strings.HasPrefix(resource, corev1.ResourceImplicitExtendedClaimsPerClass) ||
		strings.HasPrefix(strings.TrimPrefix(resource, "requests."), "nvidia.com/")
}
