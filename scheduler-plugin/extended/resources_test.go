package extended_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/scheduler-plugin/requirements"
)

// TestRequested checks which resources of a pod a DeviceClass backs. The in-tree plugin must find one exactly if
// Requested does, except where the case explains why not.
func TestRequested(t *testing.T) {
	type names = []corev1.ResourceName
	none := names(nil)
	tests := map[string]struct {
		pod  *corev1.Pod
		want names
		// inTreeDiffers is true if only one of both finds a resource.
		inTreeDiffers bool
	}{
		"no requests":                            {pod: newPod(container("c", nil)), want: none},
		"CPU and memory":                         {pod: newPod(container("c", list{"cpu": "1", "memory": "1Gi"})), want: none},
		"one resource":                           {pod: newPod(container("c", list{"cpu": "1", gpus: "1"})), want: names{gpus}},
		"the implicit resource of a class":       {pod: newPod(container("c", list{implicit: "1"})), want: names{implicit}},
		"the implicit resource of no class":      {pod: newPod(container("c", list{unknown: "1"})), want: none},
		"a resource without a class":             {pod: newPod(container("c", list{fpgas: "1"})), want: none},
		"with a resource of another driver":      {pod: newPod(container("c", list{nics: "1", gpus: "1"})), want: names{nics, gpus}},
		"with a resource without a class":        {pod: newPod(container("c", list{fpgas: "1", gpus: "1"})), want: names{gpus}},
		"several containers":                     {pod: newPod(container("c", list{gpus: "1"}), container("d", list{nics: "1"})), want: names{nics, gpus}},
		"the same resource twice":                {pod: newPod(container("c", list{gpus: "1"}), container("d", list{gpus: "2"})), want: names{gpus}},
		"an init container":                      {pod: withInit(newPod(container("c", nil)), container("i", list{gpus: "1"})), want: names{gpus}},
		"a sidecar":                              {pod: withInit(newPod(container("c", nil)), sidecar("s", list{gpus: "1"})), want: names{gpus}},
		"no containers":                          {pod: newPod(), want: none},
		"a quantity of zero":                     {pod: newPod(container("c", list{gpus: "0"})), want: none},
		"a quantity of zero and another":         {pod: newPod(container("c", list{gpus: "0", nics: "1"})), want: names{nics}},
		"a negative quantity":                    {pod: newPod(container("c", list{gpus: "-1"})), want: names{gpus}},
		"a quantity beyond 64 bits":              {pod: newPod(container("c", list{gpus: "1e30"})), want: names{gpus}},
		"a fraction":                             {pod: newPod(container("c", list{gpus: "100m"})), want: names{gpus}},
		"a name of Kubernetes that a class uses": {pod: newPod(container("c", list{"kubernetes.io/gpu": "1"})), want: none},
		"a name of quotas that a class uses":     {pod: newPod(container("c", list{"requests.nvidia.com/gpu": "1"})), want: none},
		"a name without a domain":                {pod: newPod(container("c", list{"gpu": "1"})), want: none},
		// The in-tree plugin adds up the pod and finds zero. The API server accepts no negative quantities.
		"quantities that add up to zero": {
			pod: newPod(container("c", list{gpus: "1"}), container("d", list{gpus: "-1"})), want: names{gpus}, inTreeDiffers: true,
		},
		// The in-tree plugin counts the overhead as a request but creates no device request for it, and cannot bind the pod.
		"overhead of the runtime class": {
			pod: func() *corev1.Pod {
				pod := newPod(container("c", nil))
				pod.Spec.Overhead = container("", list{gpus: "1"}).Resources.Requests
				return pod
			}(),
			want: none, inTreeDiffers: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newManager()
			for i, invalid := range (names{"kubernetes.io/gpu", "requests.nvidia.com/gpu", "gpu"}) {
				m.addClass(fmt.Sprintf("invalid-%d", i), "gpu.tessera.dev", invalid)
			}
			r, _ := newResources(t, m, true)
			got := r.Requested(test.pod)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if name == "a negative quantity" {
				return // the in-tree allocator panics
			}
			_, err := newInTree(t, m).claim(t, test.pod, newNode("node", nil))
			if found := !errors.Is(err, errNone); (found != (len(got) > 0)) != test.inTreeDiffers {
				t.Errorf("the in-tree plugin finds resources: %t (%v), here: %q", found, err, got)
			}
		})
	}
}

func TestDisabledFeatureHasNoResources(t *testing.T) {
	m := newManager()
	r, store := newResources(t, m, false)
	pod := newPod(container("c", list{gpus: "1"}))
	if got := r.Requested(pod); got != nil {
		t.Errorf("requested: %q, want nothing", got)
	}
	claim := leftover(pod)
	m.claims = append(m.claims, claim)
	if err := store.Add(claim); err != nil {
		t.Fatal(err)
	}
	if claims, err := r.ExistingClaims(pod); err != nil || len(claims) > 0 {
		t.Errorf("existing claims: %v, %v, want none", claims, err)
	}
}

// device returns a request for devices of a class.
func device(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

// noNonLocal is a cluster in which all devices are local to a node.
type noNonLocal struct{}

func (noNonLocal) NonLocalSlices() []*resourceapi.ResourceSlice { return nil }

// TestClaimFor checks the claim for the extended resources of a pod. It must have the requests of the claim that the
// in-tree plugin allocates. Pods for which it has not, or for which the in-tree plugin has no claim, are delegated: by
// ClaimFor, or by the reader of requirements if a request is for fewer or more devices than a claim can have.
func TestClaimFor(t *testing.T) {
	type requests = []resourceapi.DeviceRequest
	const (
		claimed = iota
		delegatedHere
		delegatedByReader
	)
	many := func(count int, requests list) []corev1.Container {
		var all []corev1.Container
		for i := range count {
			all = append(all, container(fmt.Sprintf("c%d", i), requests))
		}
		return all
	}
	tests := map[string]struct {
		pod     *corev1.Pod
		outcome int
		want    requests
	}{
		"one device": {pod: newPod(container("c", list{gpus: "1"})), want: requests{device("container-0-request-0", "gpu", 1)}},
		"the implicit resource of a class": {
			pod: newPod(container("c", list{implicit: "2"})), want: requests{device("container-0-request-0", "gpu", 2)},
		},
		// The number in the name is the position among all resources of the container, in alphabetic order.
		"with other resources": {
			pod:  newPod(container("c", list{"cpu": "1", "memory": "1Gi", fpgas: "1", nics: "3", gpus: "2"})),
			want: requests{device("container-0-request-3", "nic", 3), device("container-0-request-4", "gpu", 2)},
		},
		"several containers": {
			pod:  newPod(container("c", list{gpus: "1"}), container("d", list{"cpu": "1"}), container("e", list{"cpu": "1", gpus: "2"})),
			want: requests{device("container-0-request-0", "gpu", 1), device("container-2-request-1", "gpu", 2)},
		},
		"names in alphabetic order": {
			pod: newPod(many(11, list{gpus: "1"})...),
			want: requests{
				device("container-0-request-0", "gpu", 1), device("container-1-request-0", "gpu", 1), device("container-10-request-0", "gpu", 1),
				device("container-2-request-0", "gpu", 1), device("container-3-request-0", "gpu", 1), device("container-4-request-0", "gpu", 1),
				device("container-5-request-0", "gpu", 1), device("container-6-request-0", "gpu", 1), device("container-7-request-0", "gpu", 1),
				device("container-8-request-0", "gpu", 1), device("container-9-request-0", "gpu", 1),
			},
		},
		"two names of one class": {
			pod:  newPod(container("c", list{gpus: "1", implicit: "1"})),
			want: requests{device("container-0-request-0", "gpu", 1), device("container-0-request-1", "gpu", 1)},
		},
		"a sidecar": {
			pod:  withInit(newPod(container("c", list{gpus: "2"})), sidecar("s", list{gpus: "1"})),
			want: requests{device("container-0-request-0", "gpu", 1), device("container-1-request-0", "gpu", 2)},
		},
		"an init container that needs no devices": {
			pod:  withInit(newPod(container("c", list{gpus: "1"})), container("i", list{"cpu": "8", fpgas: "1"})),
			want: requests{device("container-1-request-0", "gpu", 1)},
		},
		"an init container that requests zero": {
			pod:  withInit(newPod(container("c", list{gpus: "1"})), container("i", list{gpus: "0"})),
			want: requests{device("container-1-request-0", "gpu", 1)},
		},
		// The in-tree plugin reuses the devices of containers that run later for init containers.
		"an init container": {
			pod: withInit(newPod(container("c", list{gpus: "2"})), container("i", list{gpus: "1"})), outcome: delegatedHere,
		},
		"an init container that needs more devices": {
			pod: withInit(newPod(container("c", list{gpus: "1"})), container("i", list{gpus: "4"})), outcome: delegatedHere,
		},
		"an init container and a sidecar": {
			pod: withInit(newPod(container("c", nil)), sidecar("s", list{gpus: "1"}), container("i", list{gpus: "1"})), outcome: delegatedHere,
		},
		"an init container with another resource than the containers": {
			pod: withInit(newPod(container("c", list{gpus: "1"})), container("i", list{nics: "1"})), outcome: delegatedHere,
		},
		"a container that restarts always is no sidecar": {
			pod: newPod(sidecar("c", list{gpus: "1"})), want: requests{device("container-0-request-0", "gpu", 1)},
		},
		"an init container that never restarts is no sidecar": {
			pod: func() *corev1.Pod {
				i, never := container("i", list{gpus: "1"}), corev1.ContainerRestartPolicyNever
				i.RestartPolicy = &never
				return withInit(newPod(container("c", nil)), i)
			}(),
			outcome: delegatedHere,
		},
		"zero in one of two containers": {
			pod: newPod(container("c", list{gpus: "0"}), container("d", list{gpus: "1"})), want: requests{device("container-1-request-0", "gpu", 1)},
		},
		"as many devices as a claim can have": {
			pod: newPod(container("c", list{gpus: "32"})), want: requests{device("container-0-request-0", "gpu", 32)},
		},
		"more devices than a claim can have": {
			pod: newPod(container("c", list{gpus: "33"})), outcome: delegatedByReader, want: requests{device("container-0-request-0", "gpu", 33)},
		},
		"more devices than a claim can have, in two containers": {
			pod: newPod(container("c", list{gpus: "32"}), container("d", list{gpus: "1"})), outcome: delegatedByReader,
			want: requests{device("container-0-request-0", "gpu", 32), device("container-1-request-0", "gpu", 1)},
		},
		"a quantity with a suffix": {
			pod: newPod(container("c", list{gpus: "1k"})), outcome: delegatedByReader, want: requests{device("container-0-request-0", "gpu", 1000)},
		},
		"a large number": {
			pod: newPod(container("c", list{gpus: "999999999999999999"})), outcome: delegatedByReader,
			want: requests{device("container-0-request-0", "gpu", 999999999999999999)},
		},
		"large numbers that overflow if added up": {
			pod: newPod(many(10, list{gpus: "999999999999999999"})...), outcome: delegatedByReader,
			want: func() requests {
				var all requests
				for i := range 10 {
					all = append(all, device(fmt.Sprintf("container-%d-request-0", i), "gpu", 999999999999999999))
				}
				return all
			}(),
		},
		// The API server accepts neither negative quantities nor fractions. The in-tree plugin skips what is no int64, and
		// its allocator panics if a count is negative.
		"a negative quantity": {
			pod: newPod(container("c", list{gpus: "-1"})), outcome: delegatedByReader, want: requests{device("container-0-request-0", "gpu", -1)},
		},
		// Quantities of 19 digits are not int64 inside, even if they fit.
		"the largest number of 64 bits": {pod: newPod(container("c", list{gpus: "9223372036854775807"})), outcome: delegatedHere},
		"a quantity beyond 64 bits":     {pod: newPod(container("c", list{gpus: "9223372036854775808"})), outcome: delegatedHere},
		"a huge quantity":               {pod: newPod(container("c", list{gpus: "1e30"})), outcome: delegatedHere},
		"a fraction":                    {pod: newPod(container("c", list{gpus: "1500m"})), outcome: delegatedHere},
		"a fraction in an init container": {
			pod: withInit(newPod(container("c", list{gpus: "1"})), container("i", list{gpus: "500m"})), outcome: delegatedHere,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newManager()
			r, _ := newResources(t, m, true)
			claim, err := r.ClaimFor(test.pod, r.Requested(test.pod))
			if test.outcome == delegatedHere {
				if !errors.Is(err, requirements.ErrDelegate) || claim != nil {
					t.Errorf("claim %v, error %v, want an error that delegates", claim, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, claim.Spec.Devices.Requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if claim.Namespace != test.pod.Namespace {
				t.Errorf("the claim is in the namespace %q", claim.Namespace)
			}
			_, err = requirements.NewReader(m.DeviceClasses(), noNonLocal{}).Read([]*resourceapi.ResourceClaim{claim}, nil)
			if delegated := errors.Is(err, requirements.ErrDelegate); delegated != (test.outcome == delegatedByReader) {
				t.Errorf("the reader returns %v", err)
			}
			if name == "a negative quantity" {
				return // the in-tree allocator panics
			}
			// A device plugin must offer a resource that no class backs. The in-tree plugin rejects other nodes.
			expected, err := newInTree(t, m).claim(t, test.pod, newNode("node", list{fpgas: "8"}))
			switch {
			case test.outcome == delegatedByReader:
				if err == nil {
					t.Errorf("the in-tree plugin allocates %v", expected.Spec.Devices.Requests)
				}
			case err != nil:
				t.Errorf("the in-tree plugin: %v", err)
			default:
				if diff := cmp.Diff(expected.Spec.Devices.Requests, claim.Spec.Devices.Requests); diff != "" {
					t.Errorf("requests (-in-tree +got):\n%s", diff)
				}
			}
		})
	}
}

// Classes may change between Requested and ClaimFor.
func TestClaimForDelegatesIfTheClassIsDeleted(t *testing.T) {
	m := newManager()
	r, _ := newResources(t, m, true)
	pod := newPod(container("c", list{gpus: "1"}))
	names := r.Requested(pod)
	m.deleteClasses()
	if claim, err := r.ClaimFor(pod, names); !errors.Is(err, requirements.ErrDelegate) {
		t.Errorf("claim %v, error %v, want an error that delegates", claim, err)
	}
	if got := r.Requested(pod); len(got) > 0 {
		t.Errorf("requested without classes: %q", got)
	}
}

// A class that is added during an attempt does not add devices to the claim.
func TestClaimForIsLimitedToTheNames(t *testing.T) {
	m := newManager()
	r, _ := newResources(t, m, true)
	pod := newPod(container("c", list{gpus: "1", nics: "1"}))
	claim, err := r.ClaimFor(pod, []corev1.ResourceName{gpus})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]resourceapi.DeviceRequest{device("container-0-request-1", "gpu", 1)}, claim.Spec.Devices.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestOfferedOn checks nodes on which device plugins offer resources. If none is offered, the in-tree plugin's claim has
// all requests, and otherwise fewer or there is none: then the claim of ClaimFor is not the right one.
func TestOfferedOn(t *testing.T) {
	both := newPod(container("c", list{nics: "1", gpus: "1"}))
	tests := map[string]struct {
		offered list
		want    bool
	}{
		"nothing offered":                 {nil, false},
		"CPU":                             {list{"cpu": "8"}, false},
		"another resource":                {list{fpgas: "1"}, false},
		"the implicit name of the class":  {list{implicit: "8"}, false},
		"one of the resources":            {list{gpus: "8"}, true},
		"both":                            {list{gpus: "8", nics: "1"}, true},
		"less than requested":             {list{gpus: "1", nics: "0"}, true},
		"a device plugin that is removed": {list{gpus: "0"}, false},
		"a negative quantity":             {list{gpus: "-1"}, true},
		"a fraction":                      {list{gpus: "1m"}, true},
	}
	for name, test := range tests {
		m := newManager()
		r, _ := newResources(t, m, true)
		node := newNode("node", test.offered)
		if got := r.OfferedOn(infoOf(node), r.Requested(both)); got != test.want {
			t.Errorf("%s: offered %t, want %t", name, got, test.want)
		}
		if r.OfferedOn(infoOf(node), nil) {
			t.Errorf("%s: offered to a pod without extended resources", name)
		}
		claim, err := newInTree(t, m).claim(t, both, node)
		if err != nil {
			t.Errorf("%s: the in-tree plugin: %v", name, err)
			continue
		}
		whole := claim != nil && len(claim.Spec.Devices.Requests) == 2
		if whole == test.want {
			t.Errorf("%s: the in-tree plugin's claim is %v, and offered is %t", name, claim, test.want)
		}
	}
}

// leftover returns a claim for the extended resources of the pod that an earlier attempt created.
func leftover(pod *corev1.Pod) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{}
	claim.Namespace, claim.Name, claim.UID = pod.Namespace, pod.Name+"-extended-resources-x", "uid-of-claim"
	claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	claim.OwnerReferences = append(claim.OwnerReferences, controllerRef(pod))
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{device("container-0-request-0", "gpu", 1)}
	return claim
}

// TestExistingClaims checks which claims are those of an earlier attempt. The in-tree plugin rejects every node for such
// a claim, and deletes it. A claim that only one of both recognizes would be a pod that is never scheduled.
func TestExistingClaims(t *testing.T) {
	type change = func(*resourceapi.ResourceClaim)
	requesting := newPod(container("c", list{gpus: "1"}))
	tests := map[string]struct {
		pod    *corev1.Pod
		change change
		want   bool
	}{
		"a claim of an earlier attempt": {requesting, func(*resourceapi.ResourceClaim) {}, true},
		"no annotation":                 {requesting, func(c *resourceapi.ResourceClaim) { c.Annotations = nil }, false},
		"another value of the annotation": {requesting, func(c *resourceapi.ResourceClaim) {
			c.Annotations[resourceapi.ExtendedResourceClaimAnnotation] = "True"
		}, false},
		"no owner": {requesting, func(c *resourceapi.ResourceClaim) { c.OwnerReferences = nil }, false},
		"an owner that is no controller": {requesting, func(c *resourceapi.ResourceClaim) {
			c.OwnerReferences[0].Controller = nil
		}, false},
		"an earlier pod of the same name": {requesting, func(c *resourceapi.ResourceClaim) { c.OwnerReferences[0].UID = "uid-of-another" }, false},
		"the pod's UID with another name": {requesting, func(c *resourceapi.ResourceClaim) { c.OwnerReferences[0].Name = "b" }, false},
		"a second owner": {requesting, func(c *resourceapi.ResourceClaim) {
			other := c.OwnerReferences[0]
			other.Name, other.UID, other.Controller = "b", "uid-of-b", nil
			c.OwnerReferences = slices.Insert(c.OwnerReferences, 0, other)
		}, true},
		"another namespace":           {requesting, func(c *resourceapi.ResourceClaim) { c.Namespace = "other" }, true},
		"an allocated claim":          {requesting, func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} }, true},
		"a pod that requests none":    {newPod(container("c", list{"cpu": "1"})), func(*resourceapi.ResourceClaim) {}, false},
		"a resource without a class":  {newPod(container("c", list{fpgas: "1"})), func(*resourceapi.ResourceClaim) {}, false},
		"a resource quantity of zero": {newPod(container("c", list{gpus: "0"})), func(*resourceapi.ResourceClaim) {}, false},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		test := tests[name]
		t.Run(name, func(t *testing.T) {
			m := newManager()
			r, store := newResources(t, m, true)
			claim := leftover(test.pod)
			test.change(claim)
			m.claims = append(m.claims, claim)
			if err := store.Add(claim); err != nil {
				t.Fatal(err)
			}
			got, err := r.ExistingClaims(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			if (len(got) == 1) != test.want || len(got) > 1 {
				t.Errorf("found %d claims, want it found: %t", len(got), test.want)
			}
			_, err = newInTree(t, m).claim(t, test.pod, newNode("node", nil), claim)
			if rejected := err != nil && !errors.Is(err, errNone); rejected != test.want {
				t.Errorf("the in-tree plugin returns %v, want the claim found: %t", err, test.want)
			}
		})
	}
}

// The manager may have assumed an allocation that the informer has not received, and may no longer have a claim.
func TestExistingClaimsAreThoseOfTheManager(t *testing.T) {
	m := newManager()
	r, store := newResources(t, m, true)
	pod := newPod(container("c", list{gpus: "1"}))
	observed, deleted := leftover(pod), leftover(pod)
	deleted.Name += "-deleted"
	for _, c := range []*resourceapi.ResourceClaim{observed, deleted} {
		if err := store.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	assumed := observed.DeepCopy()
	assumed.Status.Allocation = &resourceapi.AllocationResult{}
	m.claims = append(m.claims, assumed)
	got, err := r.ExistingClaims(pod)
	if err != nil || len(got) != 1 || got[0] != assumed {
		t.Errorf("claims %v, error %v, want the assumed one", got, err)
	}
}
