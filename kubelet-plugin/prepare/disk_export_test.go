package prepare

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// OpenRecords opens the records of the agent, which this package cannot import.
type OpenRecords func(files disk.FileSystem, dir string, report func(path string, err error)) (Records, error)

// useDisk makes the agents of the world keep their records in the folder of the file system.
func (w *world) useDisk(t *testing.T, open OpenRecords, files disk.FileSystem, dir string) {
	t.Helper()
	stored, err := open(files, dir, func(path string, err error) { t.Errorf("%s: %v", path, err) })
	if err != nil {
		t.Fatal(err)
	}
	w.stored = stored
	w.readDisk(t)
}

// readDisk makes the records on the disk those of the world's rules.
func (w *world) readDisk(t *testing.T) {
	t.Helper()
	all, err := w.stored.List()
	if err != nil {
		t.Fatal(err)
	}
	w.records.kept = map[string]Record{}
	for _, r := range all {
		w.records.kept[r.UID] = r
	}
}

// diskOperations are what an agent does for a claim, and whether the claim is prepared before.
var diskOperations = map[string]struct {
	prepared bool
	do       operation
}{
	"prepare": {false, prepareIt}, "prepare again": {true, prepareIt}, "unprepare": {true, unprepareIt}, "reconcile": {true, reconcileIt},
}

// TryDiskFaults fails each call that the agent makes on its disk while it prepares or unprepares the claim of a scenario, for all of them.
func TryDiskFaults(t *testing.T, open OpenRecords) {
	t.Helper()
	for name, s := range scenarios {
		for kind, op := range diskOperations {
			// Prepared claims are verified in the same way whatever they hold.
			if (kind == "prepare again" || kind == "reconcile") && name != "MIG device with neighbours" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				tried := disktest.TryFaults(t, func(d *disktest.Disk) disktest.Case {
					w := emptyWorld(nodeOf(t, s.machine), filepath.Join(d.Dir(), "locks"))
					w.files = d
					w.process(t, nil) // makes the folder of the locks
					w.useDisk(t, open, d, filepath.Join(d.Dir(), "claims"))
					r := s.tryIn(t, w)
					return disktest.Case{
						Before: func() error {
							if !op.prepared {
								return nil
							}
							return prepareIt(r, r.process(t, nil))
						},
						Do:       func() error { return op.do(r, r.process(t, nil)) },
						State:    func() (string, error) { return r.stateOnDisk(), nil },
						Succeeds: func(f disktest.Fault) bool { return kind == "unprepare" && disktest.IsFull(f) },
						// The owner in a lock file is for messages, and a file that stays is removed with the next call for its claim.
						Ignored: func(c disktest.Call) bool {
							return (c.Op == "remove" || c.Op == "write") && strings.HasSuffix(c.Path, ".lock")
						},
					}
				})
				t.Logf("%d faults", tried)
			})
		}
	}
}

// stateOnDisk returns the claim, the hardware and what is wrong, then ends all claims and returns what they left.
func (r *trial) stateOnDisk() string {
	r.readDisk(r.t)
	text := []string{"claim " + string(r.state())}
	for _, i := range r.instances() {
		text = append(text, fmt.Sprintf("%s %v", i.GPU, i.Placement))
	}
	for _, name := range slices.Sorted(maps.Keys(r.gpus)) {
		c := r.gpus[name]
		text = append(text, fmt.Sprintf("%s: MIG %v, %s, %v, bound %t", name, c.Mode, c.interval, c.compute, c.bound))
	}
	r.faults = nil
	r.check("with faults")
	for _, c := range append(r.others(), r.claim(r.world)) {
		r.must("end of "+c.Name, r.process(r.t, nil).Unprepare(quiet(r.t), c.Ref))
	}
	r.readDisk(r.t)
	for _, left := range r.litter() {
		r.faults = append(r.faults, "at the end: "+left)
	}
	return strings.Join(append(text, r.faults...), "\n")
}

// TryPowerFailures ends the agent and loses what was not synced after each call that it makes on its disk. The hardware keeps its state, which is more
// than a power failure can leave, or is reset: no record is missing or damaged, and nothing leaks.
func TryPowerFailures(t *testing.T, open OpenRecords) {
	t.Helper()
	for _, name := range []string{"MIG device with neighbours", "slices and a whole GPU", "whole GPU with a time slice", "first MPS share"} {
		for kind, op := range diskOperations {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				tried := 0
				for n := 0; scenarios[name].losePower(t, open, op.prepared, op.do, n, &tried); n++ { //nolint:revive // the calls are counted
				}
				t.Logf("%d states after power failures", tried)
			})
		}
	}
}

// losePower ends the agent before the n-th call on its disk, and reports whether it had that many.
func (s scenario) losePower(t *testing.T, open OpenRecords, prepared bool, do operation, n int, tried *int) bool {
	t.Helper()
	w := newWorld(t, s.machine)
	d := disktest.New(t, disktest.Folder(t))
	w.useDisk(t, open, d, d.Dir()+"/claims")
	r := s.tryIn(t, w)
	if prepared {
		r.must("prepare", prepareIt(r, r.process(t, nil)))
	}
	calls := 0
	d.Fail(func(disktest.Call) error {
		if calls++; calls > n {
			panic(killed{})
		}
		return nil
	})
	dead, err := survive(func() error { return do(r, r.process(t, nil)) })
	d.Fail(nil)
	if !dead && err != nil {
		t.Errorf("before call %d: %v", n, err)
	}
	for _, after := range []string{"prepared again", "rebooted"} {
		d.EachLoss(t, func(dir string) {
			*tried++
			next := &trial{world: r.clone(t), t: t, scenario: s, faults: slices.Clone(r.faults)}
			next.useDisk(t, open, nil, filepath.Join(dir, "claims"))
			next.check("after the power failure")
			next.stored = synchronized{next.stored, next.world, t}
			aftermaths[after](next)
			next.end()
			for _, fault := range next.faults {
				t.Errorf("power failure before call %d, then %s: %s", n, after, fault)
			}
		})
	}
	return dead
}

// synchronized are records whose changes the world's rules see.
type synchronized struct {
	Records
	w *world
	t *testing.T
}

// Save implements Records.
func (s synchronized) Save(r Record) error {
	err := s.Records.Save(r)
	s.sync()
	return err
}

// Delete implements Records.
func (s synchronized) Delete(uid string) error {
	err := s.Records.Delete(uid)
	s.sync()
	return err
}

func (s synchronized) sync() {
	s.w.records.mutex.Lock()
	defer s.w.records.mutex.Unlock()
	all, err := s.List()
	if err != nil {
		s.t.Error(err)
	}
	s.w.records.kept = map[string]Record{}
	for _, r := range all {
		s.w.records.kept[r.UID] = r
	}
}

// clone returns a world with a copy of the hardware and the specs, and with other locks.
func (w *world) clone(t *testing.T) *world {
	t.Helper()
	other := emptyWorld(w.node, disktest.Folder(t))
	other.boot, other.on, other.sandbox, other.api = w.boot, w.on, w.sandbox, w.api
	other.foreign, other.busy, other.sins = maps.Clone(w.foreign), maps.Clone(w.busy), slices.Clone(w.sins)
	for name, c := range w.gpus {
		copied := *c
		copied.Instances = slices.Clone(c.Instances)
		copied.processes = slices.Clone(c.processes)
		other.gpus[name] = &copied
	}
	for name, d := range w.fleet.daemons {
		copied := *d
		other.fleet.daemons[name] = &copied
	}
	other.specs.kept = map[string][]Prepared{}
	for uid, devices := range w.specs.kept {
		other.specs.kept[uid] = slices.Clone(devices)
	}
	return other
}
