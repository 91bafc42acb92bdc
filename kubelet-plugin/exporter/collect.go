package exporter

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/diagnosis"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// sink is the channel to which series are sent.
type sink struct{ out chan<- prometheus.Metric }

func (s sink) put(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = valid(label)
	}
	metric, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	s.out <- metric
}

func (s sink) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	s.put(desc, prometheus.GaugeValue, value, labels...)
}

// collectInventory sends the series of a GPU that need no query of the hardware.
func (e *Exporter) collectInventory(s sink, node gpu.Node, c card) {
	name, uuid, product := c.gpu, c.uuid, c.product
	s.gauge(e.descs.info, 1, name, uuid, product, c.Architecture, node.DriverVersion, node.CUDAVersion)
	s.gauge(e.descs.held, boolValue(c.Held != ""), name, uuid, product)
	s.gauge(e.descs.claims, float64(c.occupancy.Holders()), name, uuid, product, c.shape)
	if c.Geometry.Slices() > 0 {
		s.gauge(e.descs.slices, float64(c.occupancy.Free().Count()), name, uuid, product, "free")
		s.gauge(e.descs.slices, float64(c.occupancy.Taken().Count()), name, uuid, product, "allocated")
		s.gauge(e.descs.slices, float64(c.occupancy.Withheld().Count()), name, uuid, product, "withheld")
		room := c.freeProfiles()
		for _, profile := range slices.Sorted(maps.Keys(room)) {
			s.gauge(e.descs.room, float64(room[profile]), name, uuid, product, profile)
		}
	}
	for _, d := range c.all() {
		healthy := diagnosis.Of(c.GPU, d.use(), gpu.Rules{}).Healthy()
		s.gauge(e.descs.health, boolValue(healthy), d.gpu, d.uuid, d.product, d.shape, d.profile, d.namespace, d.pod, d.container, d.claim)
		e.collectClaims(s, c, d)
	}
}

// collectLimits sends the limits of containers and what they have allocated.
func (e *Exporter) collectLimits(s sink, node gpu.Node) {
	usages := e.limits.get()
	e.countError(ofLimits, "", usages.err)
	for _, u := range distinct(usages.value) {
		g, err := node.Find(u.GPU)
		if err != nil {
			continue // it was removed just now
		}
		labels := func() []string {
			return []string{u.GPU, g.UUID, g.Product, u.Namespace, u.Pod, u.Container, u.Claim.Name}
		}
		s.gauge(e.descs.limit, float64(u.LimitBytes), labels()...)
		s.gauge(e.descs.used, float64(u.UsedBytes), labels()...)
		if u.Refused != nil {
			s.put(e.descs.refused, prometheus.CounterValue, float64(*u.Refused), labels()...)
		}
	}
}

// distinct returns one usage for each set of labels, that with the most memory: the control group of a container that ended can exist while the next container
// of the same name runs, and two series with equal labels would fail the scrape.
func distinct(all []limiter.Usage) []limiter.Usage {
	type labels struct{ gpu, namespace, pod, container, claim string }
	at := map[labels]int{}
	var kept []limiter.Usage
	for _, u := range all {
		l := labels{u.GPU, u.Namespace, u.Pod, u.Container, u.Claim.Name}
		i, known := at[l]
		switch {
		case !known:
			at[l] = len(kept)
			kept = append(kept, u)
		case u.UsedBytes > kept[i].UsedBytes:
			kept[i] = u
		}
	}
	return kept
}

// collectClaims sends the users of a device and the resources that they were allocated.
func (e *Exporter) collectClaims(s sink, c card, d device) {
	type owner struct{ namespace, claim string }
	promised := map[owner]uint64{}
	var owners []owner
	var users []consumer
	for _, h := range d.held {
		o := owner{h.claim.Namespace, h.claim.Name}
		if !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
		promised[o] += c.allocatedMemory(h)
		users = append(users, h.holders...)
	}
	for _, o := range owners {
		if promised[o] > 0 {
			s.gauge(e.descs.promised, float64(promised[o]), d.gpu, d.uuid, d.product, d.shape, d.profile, o.namespace, o.claim)
		}
	}
	for _, u := range mergeByPod(users) {
		s.gauge(e.descs.pod, 1, d.gpu, d.uuid, d.gpuUUID, d.gpuInstance, d.shape, d.profile, u.namespace, u.pod, u.container, u.claim)
	}
}

// collectMeasurement sends the telemetry of a GPU and its MIG devices. A MIG device that the inventory lacks was created
// or destroyed just now and is left out.
func (e *Exporter) collectMeasurement(s sink, c card, m gpu.Measurement) {
	for _, d := range c.all() {
		telemetry := m.GPU
		if d.isMIG {
			telemetry = m.Instances[d.uuid]
		}
		for _, q := range e.measured {
			if value, has := telemetry[q.quantity]; has {
				desc, labels := q.labels(d)
				s.put(desc, q.kind, value, labels...)
			}
		}
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
