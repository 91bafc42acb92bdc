package limiter

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const gib = 1 << 30

func share(gpuName string, bytes uint64) prepare.Wanted {
	return prepare.Wanted{Use: gpu.Device{GPU: gpuName, Use: gpu.Use{Shape: gpu.TimeShare, Share: gpu.Share{MemoryBytes: bytes, Shares: 1}}}}
}

func mps(gpuName string, bytes uint64) prepare.Wanted {
	return prepare.Wanted{Use: gpu.Device{GPU: gpuName, Use: gpu.Use{Shape: gpu.MPS, Share: gpu.Share{MemoryBytes: bytes, Shares: 1}}}}
}

func whole(gpuName string) prepare.Wanted {
	return prepare.Wanted{Use: gpu.Device{GPU: gpuName, Use: gpu.Use{Shape: gpu.Whole}}}
}

func record(uid string, state prepare.State, wanted ...prepare.Wanted) prepare.Record {
	return prepare.Record{Ref: prepare.Ref{UID: uid, Namespace: "default", Name: uid}, State: state, Wanted: wanted}
}

func device(claim string, position int) hook.LimitedDevice {
	return hook.LimitedDevice{Claim: claim, Position: position}
}

func TestSum(t *testing.T) {
	records := map[string]prepare.Record{
		"a":    record("a", prepare.StatePrepared, share("gpu-0", 10*gib), share("gpu-1", 4*gib), share("gpu-0", 2*gib)),
		"b":    record("b", prepare.StatePrepared, share("gpu-0", gib)),
		"all":  record("all", prepare.StatePrepared, share("gpu-0", 0), whole("gpu-2"), mps("gpu-2", 3*gib)),
		"gone": record("gone", prepare.StateUnpreparing, share("gpu-0", gib)),
	}
	limiterOf := func(name string) gpu.Limiter {
		return map[string]gpu.Limiter{"gpu-0": gpu.LimitedByMisc, "gpu-1": gpu.LimitedByDmem, "gpu-2": gpu.LimitedByMisc}[name]
	}
	for name, test := range map[string]struct {
		devices []hook.LimitedDevice
		want    []limit
		is      error
	}{
		"one share":                {[]hook.LimitedDevice{device("a", 0)}, []limit{{"gpu-0", 10 * gib, true}}, nil},
		"two shares of a GPU":      {[]hook.LimitedDevice{device("a", 0), device("a", 2)}, []limit{{"gpu-0", 12 * gib, true}}, nil},
		"of two claims":            {[]hook.LimitedDevice{device("b", 0), device("a", 0)}, []limit{{"gpu-0", 11 * gib, true}}, nil},
		"of two GPUs":              {[]hook.LimitedDevice{device("a", 0), device("a", 1)}, []limit{{"gpu-0", 10 * gib, true}, {"gpu-1", 4 * gib, true}}, nil},
		"one without a limit":      {[]hook.LimitedDevice{device("all", 0), device("a", 0)}, []limit{{"gpu-0", gpu.NoMemoryLimit, true}}, nil},
		"a whole GPU":              {[]hook.LimitedDevice{device("all", 1)}, []limit{{"gpu-2", gpu.NoMemoryLimit, false}}, nil},
		"an MPS share with misc":   {[]hook.LimitedDevice{device("all", 2)}, []limit{{"gpu-2", 3 * gib, false}}, nil},
		"a claim that is released": {[]hook.LimitedDevice{device("gone", 0)}, nil, errNotPrepared},
		"an unknown claim":         {[]hook.LimitedDevice{device("other", 0)}, nil, errNotPrepared},
		"an unknown device":        {[]hook.LimitedDevice{device("b", 1)}, nil, errNotPrepared},
	} {
		got, err := sum(test.devices, records, limiterOf)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(limit{})); diff != "" || !errors.Is(err, test.is) {
			t.Errorf("%s: error %v, want %v; limits (-want +got):\n%s", name, err, test.is, diff)
		}
	}
	old := func(string) gpu.Limiter { return gpu.NotLimited }
	if _, err := sum([]hook.LimitedDevice{device("b", 0)}, records, old); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("with a driver that limits nothing: %v", err)
	}
}

func TestValidate(t *testing.T) {
	one := []hook.LimitedDevice{device("a", 0)}
	for group, valid := range map[string]bool{
		"/kubepods.slice/a.scope": true, "/": false, "": false, "kubepods": false, "/../a": false, "/a/../../b": false, "/a/": false,
	} {
		if err := validate(hook.LimitRequest{Group: group, Devices: one}); (err == nil) != valid {
			t.Errorf("group %q: %v", group, err)
		}
	}
	for _, devices := range [][]hook.LimitedDevice{nil, make([]hook.LimitedDevice, maxDevices+1)} {
		if err := validate(hook.LimitRequest{Group: "/a", Devices: devices}); err == nil {
			t.Errorf("%d devices are accepted", len(devices))
		}
	}
}
