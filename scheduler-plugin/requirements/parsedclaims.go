package requirements

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// parsedClaims are the requests and constraints of claims, before selectors are compiled.
type parsedClaims struct {
	requests    []request
	constraints []constraint
}

// request is one request of one claim.
type request struct {
	// name is claim/request, short the request's own.
	name, short  string
	alternatives []alternative
}

// alternative is a request without alternatives, or one of its subrequests.
type alternative struct {
	// name is that of the subrequest, empty without a choice.
	name  string
	class string
	count int
	// selectors are those of the class, then those of the request.
	selectors   []string
	tolerations []resourceapi.DeviceToleration
	capacity    map[resourceapi.QualifiedName]resource.Quantity
}

// constraint binds requests of one claim to each other.
type constraint struct {
	attribute resourceapi.FullyQualifiedName
	distinct  bool
	members   []fit.Member
}

// addClaim adds the requests and constraints of a claim.
func (s *parsedClaims) addClaim(claim *resourceapi.ResourceClaim, classes Classes) error {
	first, devices := len(s.requests), 0
	for i := range claim.Spec.Devices.Requests {
		listed := &claim.Spec.Devices.Requests[i]
		r := request{name: claim.Name + "/" + listed.Name, short: listed.Name}
		most := 0
		for _, way := range alternativesOf(listed) {
			a, err := newAlternative(way, classes)
			if err != nil {
				return delegatef("request %s: %w", strings.TrimSuffix(r.name+"/"+way.Name, "/"), err)
			}
			most = max(most, a.count)
			r.alternatives = append(r.alternatives, a)
		}
		if len(r.alternatives) == 0 {
			return delegatef("request %s: unknown kind of request", r.name)
		}
		devices += most
		s.requests = append(s.requests, r)
	}
	// The in-tree allocator skips alternatives that make a claim too large; fit does not.
	if devices > resourceapi.AllocationResultsMaxSize {
		return delegatef("claim %s: may need %d devices, more than the %d that a claim can have", claim.Name, devices, resourceapi.AllocationResultsMaxSize)
	}
	for _, c := range claim.Spec.Devices.Constraints {
		if err := s.addConstraint(c, first); err != nil {
			return delegatef("claim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// alternativesOf returns the alternatives of the request, in order of preference.
func alternativesOf(r *resourceapi.DeviceRequest) []resourceapi.DeviceSubRequest {
	if r.Exactly == nil {
		return r.FirstAvailable
	}
	e := r.Exactly
	way := resourceapi.DeviceSubRequest{
		DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, AllocationMode: e.AllocationMode, Count: e.Count,
		Tolerations: e.Tolerations, Capacity: e.Capacity, DerivedAttributes: e.DerivedAttributes,
	}
	if e.AdminAccess != nil && *e.AdminAccess {
		// Not a valid mode: newAlternative delegates it like other unsupported modes.
		way.AllocationMode = "admin access"
	}
	return []resourceapi.DeviceSubRequest{way}
}

// newAlternative returns the alternative, and an error if fit does not support it.
func newAlternative(way resourceapi.DeviceSubRequest, classes Classes) (alternative, error) {
	switch {
	case way.AllocationMode != resourceapi.DeviceAllocationModeExactCount:
		return alternative{}, fmt.Errorf("allocation mode %s", way.AllocationMode)
	case way.Count < 1 || way.Count > resourceapi.AllocationResultsMaxSize:
		return alternative{}, fmt.Errorf("count %d", way.Count)
	case len(way.DerivedAttributes) > 0:
		return alternative{}, errors.New("derived attributes")
	}
	class, err := classes.Get(way.DeviceClassName)
	if err != nil {
		return alternative{}, fmt.Errorf("get device class %s: %w", way.DeviceClassName, err)
	}
	a := alternative{name: way.Name, class: way.DeviceClassName, count: int(way.Count), tolerations: way.Tolerations}
	if way.Capacity != nil {
		a.capacity = way.Capacity.Requests
	}
	for _, s := range slices.Concat(class.Spec.Selectors, way.Selectors) {
		if s.CEL == nil {
			return alternative{}, errors.New("selector is not CEL")
		}
		a.selectors = append(a.selectors, s.CEL.Expression)
	}
	return a, nil
}

// addConstraint adds a constraint of the claim whose first request is at the position first.
func (s *parsedClaims) addConstraint(c resourceapi.DeviceConstraint, first int) error {
	named := cmp.Or(c.MatchAttribute, c.DistinctAttribute)
	if named == nil {
		return errors.New("unknown constraint")
	}
	if !strings.Contains(string(*named), "/") {
		return fmt.Errorf("constraint on %s, which has no domain", *named)
	}
	added := constraint{attribute: *named, distinct: c.MatchAttribute == nil}
	for i, r := range s.requests[first:] {
		position := first + i
		if len(c.Requests) == 0 || slices.Contains(c.Requests, r.short) {
			added.members = append(added.members, fit.Member{Request: position, Alternative: -1})
			continue
		}
		for j, a := range r.alternatives {
			if a.name != "" && slices.Contains(c.Requests, r.short+"/"+a.name) {
				added.members = append(added.members, fit.Member{Request: position, Alternative: j})
			}
		}
	}
	if len(added.members) > 0 {
		s.constraints = append(s.constraints, added)
	}
	return nil
}

// description returns what each device of the alternative must be, for messages.
func (a *alternative) description() string {
	text := a.class
	for i, name := range slices.Sorted(maps.Keys(a.capacity)) {
		q := a.capacity[name]
		text += fmt.Sprintf("%s%s %s", []string{" with ", ", "}[min(i, 1)], name, q.String())
	}
	return text
}

// requestsCapacity reports whether a request has a capacity.
func (s *parsedClaims) requestsCapacity() bool {
	return slices.ContainsFunc(s.requests, func(r request) bool {
		return slices.ContainsFunc(r.alternatives, func(a alternative) bool { return len(a.capacity) > 0 })
	})
}

// countAlternatives returns the number of alternatives of all requests.
func (s *parsedClaims) countAlternatives() int {
	count := 0
	for i := range s.requests {
		count += len(s.requests[i].alternatives)
	}
	return count
}
