package wire

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// remediation replaces the signal in the key of the taint of GPUs that are held for remediation.
const remediation = "remediation"

// MaintenanceKey is the key of the taint of all devices of a node whose GPUs are out of service for a maintenance, in a DeviceTaintRule or in ResourceSlices.
const MaintenanceKey = "tessera.dev/maintenance"

// TaintKey returns the key of the taint of devices that a fault with the signal affects.
func TaintKey(driver string, s gpu.Signal) string { return driver + "/" + string(s) }

// RemedyKey returns the key of the taint of devices whose GPU is held for remediation. It keeps new claims off until the GPU is
// released.
func RemedyKey(driver string) string { return TaintKey(driver, remediation) }

// TaintSignal returns the signal of a taint that the driver published for a fault, and for SignalXID the number. ok is false
// for all other taints.
func TaintSignal(driver string, t resourceapi.DeviceTaint) (s gpu.Signal, xid int, ok bool) {
	name, own := strings.CutPrefix(t.Key, driver+"/")
	if s = gpu.Signal(name); !own || !slices.Contains(gpu.Signals(), s) {
		return "", 0, false
	}
	if s == gpu.SignalXID {
		number, err := strconv.Atoi(t.Value)
		return s, number, err == nil
	}
	return s, 0, true
}

// taints returns the taints of a use of the GPU. For each signal there is one taint, for the worst fault that affects the use,
// in the order of gpu.Signals. The taints of a held GPU and of a maintenance are the last. A monitor has only that of a maintenance, because it is the
// means of diagnosis.
//
// This release has fewer signals than a device may have taints. Signals of other releases can exceed the limit; then the taints
// of the least severe faults are left out.
func (s source) taints(u gpu.Use) []resourceapi.DeviceTaint {
	var maintenance []resourceapi.DeviceTaint
	if s.gpu.Maintenance != "" {
		maintenance = []resourceapi.DeviceTaint{{Key: MaintenanceKey, Value: s.gpu.Maintenance, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	if u.Shape == gpu.Monitor {
		return maintenance
	}
	var taints []resourceapi.DeviceTaint
	for _, f := range s.gpu.FaultsAffecting(u) {
		key := TaintKey(s.options.Driver, f.Signal)
		known := slices.ContainsFunc(taints, func(t resourceapi.DeviceTaint) bool { return t.Key == key })
		if !known && len(taints) < resourceapi.DeviceTaintsMaxLength-2 {
			taints = append(taints, s.taint(key, f))
		}
	}
	order := gpu.Signals()
	position := func(t resourceapi.DeviceTaint) int {
		i := slices.IndexFunc(order, func(signal gpu.Signal) bool { return t.Key == TaintKey(s.options.Driver, signal) })
		if i < 0 {
			return len(order) // a signal of another release
		}
		return i
	}
	slices.SortFunc(taints, func(a, b resourceapi.DeviceTaint) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a.Key, b.Key))
	})
	if s.gpu.Held != "" {
		taints = append(taints, resourceapi.DeviceTaint{Key: RemedyKey(s.options.Driver), Effect: resourceapi.DeviceTaintEffectNoSchedule})
	}
	return append(taints, maintenance...)
}

// taint returns the taint of a fault. Its time is truncated to seconds, the precision of the API, so that the taint is equal
// after a round trip.
func (s source) taint(key string, f gpu.Fault) resourceapi.DeviceTaint {
	t := resourceapi.DeviceTaint{Key: key, Effect: s.effect(f.Severity)}
	if f.Signal == gpu.SignalXID {
		t.Value = strconv.Itoa(f.XID)
	}
	if !f.Since.IsZero() {
		t.TimeAdded = &metav1.Time{Time: f.Since.UTC().Truncate(time.Second)}
	}
	return t
}

// effect returns the effect of a fault with the severity on claims.
func (s source) effect(severity gpu.Severity) resourceapi.DeviceTaintEffect {
	switch {
	case severity < gpu.Critical:
		return resourceapi.DeviceTaintEffectNone
	case severity == gpu.Fatal && s.options.Evict:
		return resourceapi.DeviceTaintEffectNoExecute
	}
	return resourceapi.DeviceTaintEffectNoSchedule
}
