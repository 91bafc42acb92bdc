package expect

import resourceapi "k8s.io/api/resource/v1"

// Describe returns the grant of a published device.
func Describe(driver, pool string, device resourceapi.Device) Grant {
	grant := Grant{Driver: driver, Pool: pool, Device: device.Name}
	grant.read(device)
	return grant
}

// Foresee holds the devices allocated to one pod against what its containers are to see, before any of
// them has run. It says nothing about logs and about the relation of containers to each other.
func (e Expectation) Foresee(devices []Grant) []string {
	var seen []Seen
	for _, g := range devices {
		s := Seen{UUID: g.UUID, Name: g.Device, Multiprocessors: g.Multiprocessors, MemoryMiB: g.Memory >> 20}
		if g.Shape == mig {
			s.Profile, s.Parent = g.Profile, g.Parent
		}
		seen = append(seen, s)
	}
	complaints := view(e.together(), seen)
	return append(complaints, match(e.Match, Pod{Containers: []Container{{Grants: devices}}})...)
}

// together returns what the containers see between them. Without views of single containers all see the
// same.
func (e Expectation) together() View {
	all := e.View
	for _, v := range e.Containers {
		all.MIG = append(all.MIG, v.MIG...)
		if v.GPUs != nil {
			sum := *v.GPUs
			if all.GPUs != nil {
				sum += *all.GPUs
			}
			all.GPUs = &sum
		}
	}
	return all
}
