package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

// world is everything that outlives a process: the hardware, the records, the specs and the locks.
type world struct {
	*machine
	node    gpu.Node
	records *cabinet
	specs   *shelf
	api     outside
	locks   string
	boot    int
	// on is the GPU that was left with MIG on.
	on string
	// sandbox has GPUs for virtual machines.
	sandbox bool
	// stored are the records of the agent, if they are others than records; files is the file system of the locks.
	stored Records
	files  disk.FileSystem
}

// leaveOn turns MIG on and leaves it so.
func (w *world) leaveOn(index int) {
	w.on = w.node.GPUs[index].Name()
	w.gpus[w.on].Mode = gpu.ModeEnabled
}

// nodes are the nodes by machine: reading the catalogue takes longer than a test's case.
var nodes sync.Map

func nodeOf(tb testing.TB, machine string) gpu.Node {
	tb.Helper()
	node, known := nodes.Load(machine)
	if !known {
		node, _ = nodes.LoadOrStore(machine, gputest.Node(tb, machine))
	}
	return node.(gpu.Node)
}

func newWorld(tb testing.TB, name string) *world {
	tb.Helper()
	return emptyWorld(nodeOf(tb, name), disktest.Folder(tb))
}

func emptyWorld(node gpu.Node, locks string) *world {
	m := newMachine(node)
	return &world{
		machine: m, node: node, boot: 1, locks: locks,
		records: &cabinet{m: m, kept: map[string]Record{}, unreadable: map[string]UnreadableRecord{}},
		specs:   &shelf{m: m, kept: map[string][]Prepared{}},
		api:     outside{claims: map[string]Claim{}},
	}
}

// Node implements Inventory. The MIG modes and instances that it tells are those of the start.
func (w *world) Node() gpu.Node { return w.node }

// process starts an agent over the world.
func (w *world) process(tb testing.TB, observe Observer) *Preparer {
	tb.Helper()
	var passthrough Passthrough
	if w.sandbox {
		passthrough = w.machine
	}
	var records Records = w.records
	if w.stored != nil {
		records = w.stored
	}
	p, err := New(Config{
		Files: w.files, Passthrough: passthrough,
		Inventory: w, Instances: w.machine, Modes: w.machine, Processes: w.machine, TimeSlice: w.machine,
		Daemons: w.fleet, Shares: sharesOfGPU,
		Records: records, Specs: w.specs, Claims: w.api,
		BootID: w.bootID(), LocksDir: w.locks, Observer: observe,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// sharesOfGPU is how many claims share a GPU in the tests.
const sharesOfGPU = 3

func (w *world) bootID() string { return fmt.Sprintf("boot-%d", w.boot) }

func (w *world) reboot() {
	w.machine.reboot()
	w.boot++
	w.specs.kept = map[string][]Prepared{}
}

// cabinet keeps records in memory.
type cabinet struct {
	m          *machine
	mutex      sync.Mutex
	kept       map[string]Record
	unreadable map[string]UnreadableRecord
	writes     int
	// forget drops a save that says it succeeded.
	drop func(r Record) bool
}

func (c *cabinet) call(call string, do func()) error {
	c.m.mutex.Lock()
	defer c.m.mutex.Unlock()
	if err := c.m.inject(c.m.before, call); err != nil {
		return err
	}
	c.mutex.Lock()
	do()
	c.mutex.Unlock()
	return c.m.inject(c.m.after, call)
}

// Load implements Records.
func (c *cabinet) Load(uid string) (r Record, err error) {
	known, unreadable, salvaged := false, false, UnreadableRecord{}
	err = c.call("load", func() {
		r, known = c.kept[uid]
		salvaged, unreadable = c.unreadable[uid]
	})
	switch {
	case err != nil:
		return Record{}, err
	case known:
		return copied(r), nil
	case unreadable:
		return Record{}, fmt.Errorf("load: %w", &salvaged)
	}
	return Record{}, fmt.Errorf("claim %s: %w", uid, ErrNoRecord)
}

// Save implements Records.
func (c *cabinet) Save(r Record) error {
	return c.call("save "+string(r.State), func() {
		c.writes++
		if c.drop == nil || !c.drop(r) {
			c.kept[r.UID] = copied(r)
		}
	})
}

// Delete implements Records.
func (c *cabinet) Delete(uid string) error {
	return c.call("delete", func() {
		c.writes++
		delete(c.kept, uid)
		delete(c.unreadable, uid)
	})
}

// List implements Records.
func (c *cabinet) List() (all []Record, err error) {
	err = c.call("list-records", func() { all = c.all() })
	return all, err
}

// Unreadable implements Records.
func (c *cabinet) Unreadable() (uids []string, err error) {
	err = c.call("list-unreadable", func() { uids = slices.Sorted(maps.Keys(c.unreadable)) })
	return uids, err
}

func (c *cabinet) all() []Record {
	var all []Record
	for _, uid := range slices.Sorted(maps.Keys(c.kept)) {
		all = append(all, copied(c.kept[uid]))
	}
	return all
}

// snapshot returns every record.
func (c *cabinet) snapshot() []Record {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.all()
}

func copied(r Record) Record {
	r.Wanted, r.Instances = slices.Clone(r.Wanted), slices.Clone(r.Instances)
	return r
}

// shelf keeps CDI specs in memory.
type shelf struct {
	m     *machine
	mutex sync.Mutex
	kept  map[string][]Prepared
}

func (s *shelf) call(call string, do func()) error {
	s.m.mutex.Lock()
	defer s.m.mutex.Unlock()
	if err := s.m.inject(s.m.before, call); err != nil {
		return err
	}
	s.mutex.Lock()
	do()
	s.mutex.Unlock()
	return s.m.inject(s.m.after, call)
}

// Write implements Specs.
func (s *shelf) Write(uid string, devices []Prepared) ([][]string, error) {
	ids := make([][]string, len(devices))
	for i, d := range devices {
		ids[i] = []string{"claim/" + uid + "-" + d.Device, "common"}
	}
	return ids, s.call("write", func() { s.kept[uid] = slices.Clone(devices) })
}

// Remove implements Specs.
func (s *shelf) Remove(uid string) error {
	return s.call("remove", func() { delete(s.kept, uid) })
}

// List implements Specs.
func (s *shelf) List() (uids []string, err error) {
	err = s.call("list-specs", func() { uids = slices.Sorted(maps.Keys(s.kept)) })
	return uids, err
}

// outside is the API server and kubelet, as far as they are asked.
type outside struct {
	// claims are those that are allocated, by UID; gone are those that no pod holds any more.
	claims map[string]Claim
	gone   map[string]bool
	err    error
	// running are those of pods that kubelet runs.
	running map[Ref]bool
}

// Running implements Claims.
func (o outside) Running(context.Context) map[Ref]bool { return o.running }

// Held implements Claims.
func (o outside) Held(_ context.Context, r Ref) (bool, error) { return !o.gone[r.UID], o.err }

// Allocated implements Claims.
func (o outside) Allocated(_ context.Context, r Ref) (Claim, error) {
	c, known := o.claims[r.UID]
	if o.err == nil && (!known || c.Ref != r) {
		return Claim{}, ErrNoClaim
	}
	return c, o.err
}

// damage makes the claim's record unreadable, as the checkpoint does that finds it so. The API server
// knows the claim.
func (w *world) damage(c Claim) {
	text := fmt.Sprintf("%q", c.UID)
	for _, i := range w.records.kept[c.UID].Instances {
		text += fmt.Sprintf("... %q", i.UUID)
	}
	delete(w.records.kept, c.UID)
	w.records.unreadable[c.UID] = UnreadableRecord{Claim: c.Ref, Text: text}
	w.api.claims[c.UID] = c
}

// Claims of the tests.

func ref(name string) Ref { return Ref{UID: "uid-" + name, Namespace: "team", Name: name} }

func (w *world) wanted(index int, use gpu.Use) Wanted {
	name := w.node.GPUs[index].Name()
	device := name
	if use.Shape == gpu.MIG {
		device = fmt.Sprintf("%s-mig-%d-%d", name, use.Placement.Profile, use.Placement.Start)
	}
	return Wanted{
		Result: Result{Request: "request-" + device, Pool: "pool", Device: device},
		Use:    gpu.Device{GPU: name, Use: use},
	}
}

func (w *world) whole(index int) Wanted { return w.wanted(index, gpu.Use{Shape: gpu.Whole}) }

// slice is the MIG device of the profile at the start, on a GPU with a geometry that has it.
func (w *world) slice(index, profile, start int) Wanted {
	size := 1
	if p, ok := w.node.GPUs[index].Geometry.Profile(profile); ok {
		size = p.Size
	}
	return w.wanted(index, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: profile, Start: start, Size: size}})
}

// share is a share of the GPU in the shape, with so many GiB.
func (w *world) share(index int, shape gpu.Shape, memory, compute int) Wanted {
	shared := w.wanted(index, gpu.Use{Shape: shape, Share: gpu.Share{MemoryBytes: uint64(memory) << 30, Shares: 1, Compute: compute}})
	shared.Device += "-" + shape.String()
	return shared
}

// timed is the device with a wish for a time slice, served with one for a daemon.
func (w Wanted) timed(interval string) Wanted {
	w.Settings.TimeSlice = interval
	return w
}

func (w Wanted) served(percentage int) Wanted {
	w.Settings.MPS = params.MPSSettings{Private: true, ActiveThreadPercentage: percentage}
	return w
}

// limited returns the device with a memory limit of its clients.
func (w Wanted) limited(bytes int64) Wanted {
	w.Settings.MPS.PinnedMemoryBytes = bytes
	return w
}

func claim(name string, wanted ...Wanted) Claim { return Claim{Ref: ref(name), Wanted: wanted} }

// Rules.

// faults names everything that is wrong with the world, whatever crashed before: what was done to it
// and must not be, instances without an owner, claims that say they are ready and are not.
func (w *world) faults() []string {
	faults := slices.Clone(w.sins)
	records := slices.DeleteFunc(w.records.snapshot(), func(r Record) bool { return r.BootID != w.bootID() })
	damaged := func(i gpu.Instance) bool {
		for uid := range w.records.unreadable {
			if with(StatePrepared, w.api.claims[uid]).Owns(i.GPU, i.Placement) {
				return true
			}
		}
		return false
	}
	for _, i := range w.instances() {
		owners := 0
		for _, r := range records {
			if r.Owns(i.GPU, i.Placement) {
				owners++
			}
		}
		switch {
		case w.foreign[i.UUID]:
		case owners == 0 && damaged(i):
		case owners == 0:
			faults = append(faults, fmt.Sprintf("%v: leaked, no record owns it", i))
		case owners > 1:
			faults = append(faults, fmt.Sprintf("%v: %d records own it", i, owners))
		}
	}
	for _, r := range records {
		if r.State == StatePrepared {
			faults = append(faults, w.ready(r)...)
		}
	}
	for name, c := range w.gpus {
		passes := slices.ContainsFunc(records, func(r Record) bool { return r.usesPassthrough(name) })
		ready := slices.ContainsFunc(records, func(r Record) bool { return r.usesPassthrough(name) && r.State == StatePrepared })
		if c.bound && !passes || ready && !c.bound {
			faults = append(faults, fmt.Sprintf("%s: bound to vfio-pci %t, for a claim %t", name, c.bound, passes))
		}
	}
	return append(faults, w.shared(records)...)
}

// shared names what is wrong with what claims share: a GPU in two shapes or with more handed out than it
// has, and daemons without a claim.
func (w *world) shared(records []Record) []string {
	var faults []string
	for _, g := range w.node.GPUs {
		held := g.Empty(sharesOfGPU)
		for _, r := range records {
			for _, wanted := range r.on(g.Name()) {
				next, err := held.Take(wanted.Use.Use)
				if err != nil && r.State == StatePrepared {
					faults = append(faults, fmt.Sprintf("%s of claim %s: %v", wanted.Device, r.Ref, err))
				}
				held = next
			}
		}
	}
	for name, d := range w.fleet.daemons {
		if d.alive && !slices.ContainsFunc(records, func(r Record) bool { return r.uses(name) }) && !w.damagedUses(name) {
			faults = append(faults, "daemon "+name+": runs without claims")
		}
		for _, n := range d.Namespaces {
			if d.alive && !slices.ContainsFunc(records, func(r Record) bool { return r.uses(name) && r.namespace(name) == n }) && !w.damagedUses(name) {
				faults = append(faults, fmt.Sprintf("daemon %s: namespace %v without a claim", name, n))
			}
		}
	}
	return faults
}

func (w *world) damagedUses(daemon string) bool {
	for uid := range w.records.unreadable {
		if with(StatePrepared, w.api.claims[uid]).uses(daemon) {
			return true
		}
	}
	return false
}

// ready names what is wrong with a claim that says it is ready.
func (w *world) ready(r Record) []string {
	var faults []string
	spec := w.specs.kept[r.UID]
	if len(spec) != len(r.Wanted) {
		return []string{fmt.Sprintf("claim %s is ready, its spec has %d devices of %d", r.Ref, len(spec), len(r.Wanted))}
	}
	for i, want := range r.Wanted {
		c := w.gpus[want.Use.GPU]
		switch {
		case want.Use.Shape == gpu.MIG:
			profile, err := c.Geometry.Legal(want.Use.Placement)
			if err != nil || spec[i].Instance == nil {
				faults = append(faults, fmt.Sprintf("claim %s: %s is not what was requested", r.Ref, want.Device))
				continue
			}
			there := slices.Contains(c.Instances, *spec[i].Instance)
			if err := spec[i].Instance.Verify(profile, want.Use.Placement); err != nil || !there {
				faults = append(faults, fmt.Sprintf("claim %s: spec names %v, on the hardware: %v, %v", r.Ref, spec[i].Instance, there, err))
			}
		case want.Use.Shape == gpu.Whole && !want.Admin:
			if len(c.Instances) > 0 || c.Mode == gpu.ModeEnabled {
				faults = append(faults, fmt.Sprintf("claim %s: holds %s, which has MIG %v with %v", r.Ref, want.Device, c.Mode, c.Instances))
			}
			if requested := cmp.Or(want.Settings.TimeSlice, defaultTimeSlice); c.interval != requested {
				faults = append(faults, fmt.Sprintf("claim %s: time slice of %s is %s", r.Ref, want.Device, c.interval))
			}
		case want.Use.Shape.Shared():
			if len(c.Instances) > 0 || c.Mode == gpu.ModeEnabled || want.Interval != "" && c.interval != want.Interval {
				faults = append(faults, fmt.Sprintf("claim %s: shares %s, which has MIG %v and time slice %s", r.Ref, want.Device, c.Mode, c.interval))
			}
		}
		faults = append(faults, w.served(r, i)...)
	}
	return faults
}

// served names what is wrong with the daemon of a device of a claim that is ready.
func (w *world) served(r Record, i int) []string {
	want, spec := r.Wanted[i], w.specs.kept[r.UID][i]
	name, c := r.daemonOf(i), w.gpus[want.Use.GPU]
	if exclusive := c.compute == gpu.ComputeExclusive; !want.Admin && exclusive != want.exclusive() {
		return []string{fmt.Sprintf("claim %s: compute mode of %s is %v", r.Ref, want.Device, c.compute)}
	}
	if name == "" {
		if spec.Daemon != nil {
			return []string{fmt.Sprintf("claim %s: %s has a daemon that was not requested", r.Ref, want.Device)}
		}
		return nil
	}
	d, known := w.fleet.daemons[name]
	percentage, memory := want.limits()
	switch uuid := c.UUID; {
	case !known || !d.alive:
		return []string{fmt.Sprintf("claim %s: daemon %s does not run", r.Ref, name)}
	case spec.Daemon == nil || spec.Daemon.Name != name || spec.Daemon.Folders.Pipe == "":
		return []string{fmt.Sprintf("claim %s: spec of %s has daemon %v", r.Ref, want.Device, spec.Daemon)}
	case spec.Daemon.ActiveThreadPercentage != percentage || spec.Daemon.PinnedMemoryBytes != memory:
		return []string{fmt.Sprintf("claim %s: spec of %s has limits %v", r.Ref, want.Device, spec.Daemon)}
	case want.Use.Shape == gpu.MPS && (!slices.Contains(d.Namespaces, r.namespace(name)) || !strings.HasSuffix(spec.Daemon.Folders.Pipe, "/"+namespaceName(r.UID))):
		return []string{fmt.Sprintf("claim %s: daemon %s has the namespaces %v, its containers use %s", r.Ref, name, d.Namespaces, spec.Daemon.Folders.Pipe)}
	case want.Use.Shape == gpu.MIG && !strings.Contains(d.Visible, spec.Instance.UUID), want.Use.Shape != gpu.MIG && !strings.Contains(d.Visible, uuid):
		return []string{fmt.Sprintf("claim %s: daemon %s serves %s", r.Ref, name, d.Visible)}
	case looserLimit(d.ActiveThreadPercentage, percentage) != d.ActiveThreadPercentage || looserLimit(d.memoryOf(want, spec), memory) != d.memoryOf(want, spec):
		return []string{fmt.Sprintf("claim %s: daemon %s allows less than the claim has: %v", r.Ref, name, d)}
	case want.Use.Shape != gpu.MPS && d.memoryOf(want, spec) != memory:
		return []string{fmt.Sprintf("claim %s: daemon %s allows %s more memory than the claim has: %v", r.Ref, name, want.Device, d)}
	}
	return nil
}

// memoryOf returns the daemon's limit of the device.
func (d *daemon) memoryOf(w Wanted, spec Prepared) int64 {
	uuid := spec.GPU.UUID
	if w.Use.Shape == gpu.MIG {
		uuid = spec.Instance.UUID
	}
	if d.DeviceMemoryBytes == "" {
		return d.PinnedMemoryBytes
	}
	limits := strings.Split(d.DeviceMemoryBytes, ",")
	bytes, err := strconv.ParseInt(limits[slices.Index(strings.Split(d.Visible, ","), uuid)], 10, 64)
	if err != nil {
		panic(err)
	}
	return bytes
}

// litter names what is left after the last claim ended, except what other programs made.
func (w *world) litter() []string {
	litter := w.faults()
	for _, r := range w.records.snapshot() {
		litter = append(litter, fmt.Sprintf("record of %s: %s", r.Ref, r.State))
	}
	for _, i := range w.instances() {
		if !w.foreign[i.UUID] {
			litter = append(litter, fmt.Sprintf("%v", i))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.gpus)) {
		c := w.gpus[name]
		if name != w.on && c.TogglesMIG() && c.Mode == gpu.ModeEnabled && len(c.Instances) == 0 {
			litter = append(litter, name+": MIG is on, without claims")
		}
		if c.bound {
			litter = append(litter, name+": bound to vfio-pci, without claims")
		}
		if c.interval != defaultTimeSlice {
			litter = append(litter, name+": time slice "+c.interval)
		}
		if c.compute != gpu.ComputeDefault {
			litter = append(litter, name+": compute mode "+c.compute.String())
		}
	}
	for name, d := range w.fleet.daemons {
		litter = append(litter, fmt.Sprintf("daemon %s, alive: %v", name, d.alive))
	}
	locks, err := filepath.Glob(filepath.Join(w.locks, "claim-*"))
	for _, path := range locks {
		litter = append(litter, "lock file "+filepath.Base(path))
	}
	if err != nil || len(w.specs.kept) > 0 {
		litter = append(litter, fmt.Sprintf("specs %v, %v", w.specs.kept, err))
	}
	return litter
}

// killed is what a process panics with when it is killed.
type killed struct{}

// survive runs an agent's call until it ends or is killed.
func survive(call func() error) (dead bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			if _, ok := cause.(killed); !ok {
				panic(cause)
			}
			dead, err = true, errors.New("killed")
		}
	}()
	return false, call()
}

// quiet is the test's context with a logger that says nothing.
func quiet(tb testing.TB) context.Context { return klog.NewContext(tb.Context(), klog.Logger{}) }

func lines(steps []Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.String())
	}
	return all
}

func has(err error, parts ...string) bool {
	if err == nil {
		return false
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			return false
		}
	}
	return true
}
