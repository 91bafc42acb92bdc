package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	gib = 1 << 30
	// gpus is the number of GPUs; maxClaims and maxContainers limit what exists at a time. length is the number of events of a history.
	gpus, maxClaims, maxContainers, length = 2, 4, 4, 30
)

// Result counts what has happened in histories. Problems are empty if all limits were right.
type Result struct {
	Started, Refused, Killed, Resized, HooksKilled int
	// Problems are deviations: of a container that ran, of what remained at the end.
	Problems []string
}

// Add adds the counts of another result.
func (r *Result) Add(other Result) {
	r.Started += other.Started
	r.Refused += other.Refused
	r.Killed += other.Killed
	r.Resized += other.Resized
	r.HooksKilled += other.HooksKilled
	r.Problems = append(r.Problems, other.Problems...)
}

// history is one history.
type history struct {
	*node
	random *rand.Rand
	agent  *agent
	// running are the running containers, by control group.
	running map[string][]hook.LimitedDevice
	count   int
	result  Result
}

// Run runs one history, without a log, in a folder, which must be empty and whose path must be short, since it has sockets. Equal seeds are equal histories.
func Run(ctx context.Context, folder string, controller gpu.Limiter, seed uint64) (Result, error) {
	ctx = klog.NewContext(ctx, logr.Discard())
	hierarchy := filepath.Join(folder, "g")
	h := &history{
		node:   &node{kernel: newKernel(hierarchy, controller), folder: folder, records: map[string]prepare.Record{}, locks: map[string]*sync.Mutex{}, left: -1},
		random: rand.New(rand.NewPCG(seed, 0)), running: map[string][]hook.LimitedDevice{},
	}
	var err error
	if h.agent, err = h.start(ctx); err != nil {
		return Result{}, err
	}
	for i := 0; i < length && err == nil; i++ {
		err = h.event(ctx)
	}
	if err == nil {
		err = h.end(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	return h.result, h.agent.stop()
}

// event lets one thing happen, and checks all containers.
func (h *history) event(ctx context.Context) error {
	resize, restart := func() error { return h.resize(ctx) }, func() error { return h.restartAgent(ctx) }
	events := []func() error{h.prepare, h.startContainer, h.startContainer, h.restartContainer, h.allocate, h.allocate, h.endContainer, h.release, resize, resize, restart}
	if err := events[h.random.IntN(len(events))](); err != nil {
		return err
	}
	if h.isKilled() {
		h.result.Killed++
		if err := h.restartAgent(ctx); err != nil {
			return err
		}
	}
	h.check("")
	return nil
}

// mayKill lets the agent be killed during the next event, sometimes.
func (h *history) mayKill() {
	if h.random.IntN(4) == 0 {
		h.killAfter(1 + h.random.IntN(12))
	}
}

// prepare prepares a claim with one to three devices. With misc, whole GPUs are limited too: to nothing, against inherited limits.
func (h *history) prepare() error {
	if len(h.claims()) >= maxClaims {
		return nil
	}
	h.count++
	r := prepare.Record{Ref: prepare.Ref{UID: fmt.Sprintf("u%d", h.count), Name: "claim", Namespace: "team"}, State: prepare.StatePrepared}
	shape := gpu.TimeShare
	switch {
	case h.controller == gpu.LimitedByDmem && h.random.IntN(3) == 0:
		shape = gpu.MPS
	case h.controller == gpu.LimitedByMisc && h.random.IntN(4) == 0:
		shape = gpu.Whole
	}
	for range 1 + h.random.IntN(3) {
		w := prepare.Wanted{Use: gpu.Device{GPU: h.Node().GPUs[h.random.IntN(gpus)].Name(), Use: gpu.Use{Shape: shape}}}
		w.Request = "r"
		if shape != gpu.Whole {
			w.Use.Share = gpu.Share{MemoryBytes: uint64(1+h.random.IntN(8)) * gib, Shares: 1}
			w.Settings.MemoryLimitBytes = int64(h.random.IntN(2)) * 16 * gib
		}
		r.Wanted = append(r.Wanted, w)
	}
	h.put(r)
	return nil
}

// startContainer starts a container with devices of one or two claims, in the order of a runtime: control group, hook, first process.
func (h *history) startContainer() error {
	uids := h.claims()
	if len(h.running) >= maxContainers || len(uids) == 0 {
		return nil
	}
	var devices []hook.LimitedDevice
	for range 1 + h.random.IntN(2) {
		uid := uids[h.random.IntN(len(uids))]
		r, err := h.Load(uid)
		if err != nil {
			return err
		}
		for i := range r.Wanted {
			if d := (hook.LimitedDevice{Claim: uid, Position: i}); h.random.IntN(3) > 0 && !slices.Contains(devices, d) {
				devices = append(devices, d)
			}
		}
	}
	if len(devices) == 0 {
		return nil
	}
	return h.startWith(devices)
}

func (h *history) startWith(devices []hook.LimitedDevice) error {
	h.count++
	group := fmt.Sprintf("/kubepods/pod%d/c", h.count)
	if err := h.mkdir(group, h.random.IntN(12) > 0); err != nil {
		return err
	}
	h.mayKill()
	hookKilled := h.random.IntN(10) == 0
	err := h.request(hook.LimitRequest{Group: group, Devices: devices, Container: "c"}, hookKilled)
	if err != nil || h.isKilled() {
		if hookKilled {
			h.result.HooksKilled++
		}
		h.result.Refused++
		return h.rmdir(group) // the runtime ends the container without its first instruction
	}
	h.killAfter(0)
	h.result.Started++
	h.running[group] = devices
	h.check(group)
	return nil
}

// restartContainer ends a container and starts one with the same devices, as kubelet does.
func (h *history) restartContainer() error {
	group, devices := h.any()
	if group == "" {
		return nil
	}
	delete(h.running, group)
	return errors.Join(h.rmdir(group), h.startWith(devices))
}

// any returns a running container; empty if there is none.
func (h *history) any() (group string, devices []hook.LimitedDevice) {
	groups := slices.Sorted(maps.Keys(h.running))
	if len(groups) == 0 {
		return "", nil
	}
	group = groups[h.random.IntN(len(groups))]
	return group, h.running[group]
}

// allocate lets a process of a container allocate memory: the first one, or one of exec, which is in the same group.
func (h *history) allocate() error {
	if group, devices := h.any(); group != "" {
		d := devices[h.random.IntN(len(devices))]
		h.kernel.allocate(group, h.wanted(d).Use.GPU, uint64(1+h.random.IntN(6*1024))<<20)
	}
	return nil
}

func (h *history) endContainer() error {
	group, _ := h.any()
	if group == "" {
		return nil
	}
	delete(h.running, group)
	return h.rmdir(group)
}

// release releases a claim that no container uses.
func (h *history) release() error {
	for _, uid := range h.claims() {
		used := false
		for _, devices := range h.running {
			used = used || slices.ContainsFunc(devices, func(d hook.LimitedDevice) bool { return d.Claim == uid })
		}
		if !used {
			h.drop(uid)
			return nil
		}
	}
	return nil
}

// resize changes the limit of a claim. What is refused must change nothing, which the check of all containers shows.
func (h *history) resize(ctx context.Context) error {
	uids := h.claims()
	if len(uids) == 0 {
		return nil
	}
	uid := uids[h.random.IntN(len(uids))]
	before, err := h.Load(uid)
	if err != nil {
		return err
	}
	h.mayKill()
	_, err = h.agent.Resize(ctx, limiter.Resize{Claim: uid, Bytes: uint64(1+h.random.IntN(18*1024)) << 20})
	switch {
	case h.isKilled():
	case err == nil:
		h.result.Resized++
	default:
		if after, unread := h.Load(uid); unread != nil || fmt.Sprint(before) != fmt.Sprint(after) {
			h.problem("claim %s: a refused change was recorded: %v", uid, err)
		}
	}
	if !h.isKilled() {
		h.killAfter(0)
	}
	return nil
}

// restartAgent ends the agent and starts the next one. In between, another one has set the limits of all containers, as each does when it starts.
func (h *history) restartAgent(ctx context.Context) error {
	err := h.agent.stop()
	h.killAfter(0)
	if err == nil {
		h.agent, err = h.start(ctx)
	}
	if err == nil {
		err = h.agent.stop()
	}
	if err == nil {
		h.agent, err = h.start(ctx)
	}
	return err
}

func (h *history) problem(format string, args ...any) {
	h.result.Problems = append(h.result.Problems, fmt.Sprintf(format, args...))
}

// check compares the limits of the containers with those that follow from the claims: computed here, without the limiter. With a group, it is the moment before the
// first instruction of that container.
func (h *history) check(starting string) {
	for group, devices := range h.running {
		if starting != "" && group != starting {
			continue
		}
		want := map[string]uint64{}
		for _, d := range devices {
			w := h.wanted(d)
			bytes := w.Use.Share.MemoryBytes
			if w.MemoryLimit > 0 {
				bytes = w.MemoryLimit
			}
			if sum := want[w.Use.GPU] + bytes; w.Use.Shape == gpu.Whole || sum < bytes {
				want[w.Use.GPU] = gpu.NoMemoryLimit
			} else if want[w.Use.GPU] != gpu.NoMemoryLimit {
				want[w.Use.GPU] = sum
			}
		}
		for name, bytes := range want {
			if got := h.binding(group, name); got != bytes {
				h.problem("%s on %s: limit %d, want %d (starting: %t)", group, name, got, bytes, starting != "")
			}
			if used := h.used(group, name); used > bytes {
				h.problem("%s on %s: %d allocated beyond the limit %d", group, name, used, bytes)
			}
		}
	}
}

// end ends everything, and checks that nothing remains.
func (h *history) end(ctx context.Context) error {
	for len(h.running) > 0 {
		if err := h.endContainer(); err != nil {
			return err
		}
	}
	for _, uid := range h.claims() {
		h.drop(uid)
	}
	if err := h.restartAgent(ctx); err != nil { // requests of hooks that were killed have ended
		return err
	}
	if _, err := h.agent.Usages(ctx); err != nil { // an export of the metrics removes records of ended containers
		return err
	}
	left, err := os.ReadDir(h.containers())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(left) > 0 {
		h.problem("%d records of containers remain", len(left))
	}
	return nil
}
