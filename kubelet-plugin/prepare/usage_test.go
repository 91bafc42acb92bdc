package prepare

import (
	"errors"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// reconcileGone reconciles a world in which the API server and kubelet lack the claim, and returns the claims that were not released, by usage.
func (w *world) reconcileGone(t *testing.T, c Claim) (map[Usage]int, error) {
	t.Helper()
	w.api.gone = map[string]bool{c.UID: true}
	p := w.process(t, nil)
	var blocked map[Usage]int
	p.Blocked = func(counts map[Usage]int) { blocked = counts }
	err := p.Reconcile(quiet(t))
	return blocked, err
}

// A claim that kubelet has not unprepared is released only when NVML lists no process on its device: kubelet keeps the containers of a pod that was
// deleted by force for its terminationGracePeriodSeconds (kubelet/pod_workers.go), while the scheduler allocates the device again.
func TestClaimInUseIsNotReleased(t *testing.T) {
	t.Parallel()
	on := func(gi int) []gpu.Process { return []gpu.Process{{PID: 4711, GI: gi}} }
	tests := map[string]struct {
		claim     func(w *world) Claim
		processes func(w *world) []gpu.Process
		unlisted  error
		want      map[Usage]int
	}{
		"a process on a whole GPU": {
			claim:     func(w *world) Claim { return claim("a", w.whole(0)) },
			processes: func(*world) []gpu.Process { return on(gpu.NoInstance) },
			want:      map[Usage]int{UsedByProcess: 1},
		},
		"no process": {
			claim: func(w *world) Claim { return claim("a", w.whole(0)) },
		},
		"a process on its MIG device": {
			claim:     func(w *world) Claim { return claim("a", w.slice(0, 19, 3)) },
			processes: func(w *world) []gpu.Process { return on(w.instances()[0].GI) },
			want:      map[Usage]int{UsedByProcess: 1},
		},
		"a process on another MIG device": {
			claim: func(w *world) Claim { return claim("a", w.slice(0, 19, 3)) },
			processes: func(w *world) []gpu.Process {
				other, err := w.intrude(w.slice(0, 19, 5))
				if err != nil {
					panic(err)
				}
				return on(other.GI)
			},
		},
		"a process on a MIG device that the driver does not report": {
			claim:     func(w *world) Claim { return claim("a", w.slice(0, 19, 3)) },
			processes: func(*world) []gpu.Process { return on(gpu.NoInstance) },
			want:      map[Usage]int{UsedByProcess: 1},
		},
		"only the server of its MPS daemon": {
			claim:     func(w *world) Claim { return claim("a", w.whole(0).served(50)) },
			processes: func(*world) []gpu.Process { return []gpu.Process{{PID: serverPID, GI: gpu.NoInstance}} },
		},
		"a client of its MPS daemon": {
			claim: func(w *world) Claim { return claim("a", w.share(0, gpu.MPS, 20, 25)) },
			processes: func(*world) []gpu.Process {
				return append(on(gpu.NoInstance), gpu.Process{PID: serverPID, GI: gpu.NoInstance})
			},
			want: map[Usage]int{UsedByProcess: 1},
		},
		"processes that cannot be listed": {
			claim:    func(w *world) Claim { return claim("a", w.whole(0)) },
			unlisted: errors.New("unknown error"),
			want:     map[Usage]int{UsageUnknown: 1},
		},
		"a monitor of a GPU with a process": {
			claim: func(w *world) Claim {
				c := claim("a", w.wanted(0, gpu.Use{Shape: gpu.Monitor}))
				c.Wanted[0].Admin = true
				return c
			},
			processes: func(*world) []gpu.Process { return on(gpu.NoInstance) },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "h100x2")
			c := test.claim(w)
			if _, err := w.process(t, nil).Prepare(quiet(t), c); err != nil {
				t.Fatal(err)
			}
			used := w.gpus[c.Wanted[0].Use.GPU]
			if test.processes != nil {
				used.processes = test.processes(w)
			}
			used.unlisted = test.unlisted
			blocked, err := w.reconcileGone(t, c)
			if want := len(test.want) > 0; want != errors.Is(err, gpu.ErrBusy) || !maps.Equal(blocked, test.want) {
				t.Errorf("Reconcile: %v, blocked %v, want %v", err, blocked, test.want)
			}
			if _, kept := w.records.kept[c.UID]; kept != (len(test.want) > 0) {
				t.Errorf("the record is kept: %t", kept)
			}
			used.processes, used.unlisted = nil, nil
			if blocked, err := w.reconcileGone(t, c); err != nil || len(blocked) > 0 || len(w.records.kept) > 0 {
				t.Errorf("after the process: %v, blocked %v, records %v", err, blocked, w.records.kept)
			}
		})
	}
}

// After a rollback of etcd, a claim with the same UID may be allocated other devices while its containers run on the former ones.
func TestFormerAllocationInUseIsNotReleased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "h100x2")
	p := w.process(t, nil)
	if _, err := p.Prepare(quiet(t), claim("a", w.whole(0))); err != nil {
		t.Fatal(err)
	}
	before := w.records.snapshot()
	former := w.gpus[w.node.GPUs[0].Name()]
	former.processes = []gpu.Process{{PID: 4711, GI: gpu.NoInstance}}
	_, err := p.Prepare(quiet(t), claim("a", w.whole(1)))
	if !errors.Is(err, gpu.ErrBusy) || !has(err, "process 4711 uses "+former.Name()) {
		t.Errorf("Prepare: %v", err)
	}
	if diff := cmp.Diff(before, w.records.snapshot()); diff != "" {
		t.Errorf("records changed (-before +after):\n%s", diff)
	}
	if err := p.Unprepare(quiet(t), ref("a")); err != nil {
		t.Errorf("kubelet's word: %v", err)
	}
}
