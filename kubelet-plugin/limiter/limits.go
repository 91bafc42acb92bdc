package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// maxDevices is the maximum number of devices of a request: a claim has at most 32, a pod 32 claims per container.
const maxDevices = 1024

// errNotPrepared is wrapped by the error of a claim that is not prepared.
var errNotPrepared = errors.New("the claim is not prepared on this node")

// limit is what a container can allocate of one GPU, in bytes.
type limit struct {
	gpu   string
	bytes uint64
	// promised reports that one of its devices is published with memoryEnforced: hard.
	promised bool
}

func (l limit) isPromised() bool { return l.promised }

// sum returns the limits of a container with the devices, by the GPU's name: shares of one GPU are one limit together, and one without a limit removes it.
// limiterOf returns how the memory of a GPU is limited.
func sum(devices []hook.LimitedDevice, records map[string]prepare.Record, limiterOf func(gpuName string) gpu.Limiter) ([]limit, error) {
	byGPU := map[string]limit{}
	for _, d := range devices {
		r := records[d.Claim]
		if r.State != prepare.StatePrepared || d.Position < 0 || d.Position >= len(r.Wanted) {
			return nil, fmt.Errorf("device %s: %w", d, errNotPrepared)
		}
		use := r.Wanted[d.Position].Use
		limiter := limiterOf(use.GPU)
		if limiter == gpu.NotLimited {
			return nil, fmt.Errorf("%s: its driver limits no memory now: %w", use.GPU, gpu.ErrUnsupported)
		}
		before := byGPU[use.GPU]
		byGPU[use.GPU] = limit{use.GPU, plus(before.bytes, limitOf(r.Wanted[d.Position], limiter)), before.promised || limiter.Limits(use.Shape)}
	}
	return slices.SortedFunc(maps.Values(byGPU), func(a, b limit) int { return cmp.Compare(a.gpu, b.gpu) }), nil
}

// limitOf returns what a container can allocate for one device, in bytes.
func limitOf(w prepare.Wanted, limiter gpu.Limiter) uint64 {
	bytes, _ := limiter.MemoryLimit(w.Use.Use)
	return cmp.Or(w.MemoryLimit, bytes)
}

// claimsOf returns the UIDs of the container's claims.
func claimsOf(r hook.LimitRequest) []string {
	var uids []string
	for _, d := range r.Devices {
		if !slices.Contains(uids, d.Claim) {
			uids = append(uids, d.Claim)
		}
	}
	return uids
}

// plus adds limits without an overflow.
func plus(a, b uint64) uint64 {
	if a > gpu.NoMemoryLimit-b {
		return gpu.NoMemoryLimit
	}
	return a + b
}

// validate returns an error for a request that no hook of ours sends.
func validate(r hook.LimitRequest) error {
	switch {
	case !strings.HasPrefix(r.Group, "/") || path.Clean(r.Group) != r.Group || strings.HasPrefix(r.Group, "/.."):
		return fmt.Errorf("control group %q: must be an absolute path that is clean", r.Group)
	case r.Group == "/":
		return errors.New("the container is in the root of the control groups, where nothing is limited")
	case len(r.Devices) == 0 || len(r.Devices) > maxDevices:
		return fmt.Errorf("%d devices: must be 1 to %d", len(r.Devices), maxDevices)
	}
	return nil
}
