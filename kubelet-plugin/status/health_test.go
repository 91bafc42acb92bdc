package status

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// ward is a node whose GPUs the test makes ill, and the records of its claims.
type ward struct {
	mu       sync.Mutex
	node     gpu.Node
	known    bool
	outdated chan struct{}
	records  []prepare.Record
	broken   error
}

func (w *ward) Watch() (gpu.Node, bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	node := w.node
	node.GPUs = slices.Clone(node.GPUs)
	return node, w.known, w.outdated
}

func (w *ward) List() ([]prepare.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records), w.broken
}

func (w *ward) change(f func(*ward)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
	close(w.outdated)
	w.outdated = make(chan struct{})
}

// faults are those of the first GPU; lost is whether it does not answer.
func (w *ward) fault(faults ...gpu.Fault) {
	w.change(func(w *ward) { w.node.GPUs[0].Faults = faults })
}

// hospital is a world with claims on slices, shares and whole GPUs of two H100.
func hospital(t *testing.T) (w *world, first, second string) {
	t.Helper()
	node := gputest.Node(t, "h100x2")
	first, second = node.GPUs[0].Name(), node.GPUs[1].Name()
	w = newWorld(t, allocated("slice", first+"-mig-19-0"), allocated("neighbour", first+"-mig-19-1"), allocated("share", first+"-timeshare/s1"),
		allocated("whole", second), allocated("watched", first+"-monitor"))
	w.ward.node = node
	for _, name := range []string{"slice", "neighbour", "share", "whole", "watched"} {
		w.foreign(name, "nic")
		c := w.claim(name)
		r := prepare.Record{Ref: ref(name), State: prepare.StatePrepared, BootID: "boot"}
		for _, result := range c.Status.Allocation.Devices.Results[1:] {
			r.Wanted = append(r.Wanted, prepare.Wanted{Result: prepare.Result{Request: "r", Pool: pool, Device: result.Device}})
		}
		w.ward.records = append(w.ward.records, r)
	}
	w.run(func() {
		w.reporter.Prepared(ref("slice"), []prepare.Answer{answer(first + "-mig-19-0")})
		w.reporter.Prepared(ref("neighbour"), []prepare.Answer{answer(first + "-mig-19-1")})
		w.reporter.Prepared(ref("share"), []prepare.Answer{answer(first + "-timeshare/s1")})
		w.reporter.Prepared(ref("whole"), []prepare.Answer{answer(second)})
		w.reporter.Prepared(ref("watched"), []prepare.Answer{answer(first + "-monitor")})
	})
	w.client.ClearActions()
	return w, first, second
}

// follow runs the reporter as the leading agent does while do happens.
func (w *world) follow(do func()) {
	w.t.Helper()
	w.run(func() {
		ctx, cancel := context.WithCancel(w.t.Context())
		end := make(chan error, 1)
		go func() { end <- w.reporter.Follow(ctx) }()
		synctest.Wait()
		do()
		time.Sleep(writeDelay)
		synctest.Wait()
		cancel()
		if err := <-end; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) expectReports(when, namespace string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.eventsIn(namespace)); diff != "" {
		w.t.Errorf("%s: events (-want +got):\n%s", when, diff)
	}
}

var fell = time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)

func fault(name string, xid int, severity gpu.Severity, p gpu.Placement) gpu.Fault {
	return gpu.Fault{GPU: name, Placement: p, Signal: gpu.SignalXID, XID: xid, Severity: severity, Since: fell, Last: fell, Count: 1}
}

func advice(xid int) string {
	j := gpu.Rules{}.Judge(gpu.SignalXID, xid)
	return j.Meaning + "; " + j.Help
}

func TestHealthOfClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := hospital(t)
		w.follow(func() {})
		if n := w.count("get", "resourceclaims"); n != 0 {
			t.Errorf("%d claims were looked at while nothing is wrong", n)
		}

		slice := gpu.Placement{Profile: 19, Start: 0, Size: 1}
		w.follow(func() { w.ward.fault(fault(first, 94, gpu.Critical, slice)) })
		text := first + ": XID 94 since 2026-11-22T18:00:00Z: " + advice(94)
		w.is("of its slice", "slice", driver+" "+first+"-mig-19-0 Healthy=False XID94 "+text, driver+" "+first+"-mig-19-0 Ready=True Prepared")
		w.is("of the neighbour's slice", "neighbour", driver+" "+first+"-mig-19-1 Ready=True Prepared")
		w.is("of another GPU", "whole", driver+" "+second+" Ready=True Prepared")
		message := first + ": XID 94: " + advice(94)
		// Who has the GPU as a whole, were it not carved, has a part in it, too. Both claims are of the same pods.
		w.expectReports("of its slice", "ns",
			"1x Warning GPUUnhealthy ResourceClaim/share: "+message, "1x Warning GPUUnhealthy ResourceClaim/slice: "+message,
			"2x Warning GPUUnhealthy Pod/a: "+message, "2x Warning GPUUnhealthy Pod/b: "+message)
		w.expectReports("of its slice", "default", "1x Warning GPUUnhealthy Node/node1: "+message+" (Critical)")
		if n := w.count("patch", "resourceclaims"); n != 2 {
			t.Errorf("%d claims were written, want two", n)
		}

		// A fatal one of the whole GPU after it, and a storm of the same.
		worse := fault(first, 79, gpu.Fatal, gpu.Placement{})
		w.follow(func() {
			for n := range 100 {
				worse.Count, worse.Last, worse.Detail = n+1, fell.Add(time.Duration(n)*time.Second), "again"
				w.ward.fault(worse, fault(first, 94, gpu.Critical, slice))
				time.Sleep(10 * time.Millisecond)
			}
		})
		text = first + ": XID 79 since 2026-11-22T18:00:00Z: " + advice(79)
		w.is("of the GPU", "slice", driver+" "+first+"-mig-19-0 Healthy=False XID79 "+text+"; also XID 94", driver+" "+first+"-mig-19-0 Ready=True Prepared")
		w.is("of the GPU", "neighbour", driver+" "+first+"-mig-19-1 Healthy=False XID79 "+text, driver+" "+first+"-mig-19-1 Ready=True Prepared")
		w.is("of the GPU", "share", driver+" "+first+"-timeshare s1 Healthy=False XID79 "+text+"; also XID 94", driver+" "+first+"-timeshare s1 Ready=True Prepared")
		w.is("of the GPU", "watched", driver+" "+first+"-monitor Ready=True Prepared")
		if n := w.count("patch", "resourceclaims"); n > 5 {
			t.Errorf("a storm wrote %d times", n)
		}

		// A restart of the agent, which finds it as it is: nothing is written, and the claims are told nothing again.
		w.client.ClearActions()
		before := len(w.events())
		w.start()
		w.follow(func() { w.reporter.Reconciled(ref("slice"), []prepare.Answer{answer(first + "-mig-19-0")}) })
		if n := w.count("patch", "resourceclaims"); n != 0 || len(w.events()) != before {
			t.Errorf("after a restart %d writes and %d events more", n, len(w.events())-before)
		}

		// It ends while no agent runs; one claim is settled afterwards, the others when their turn comes.
		w.start()
		w.ward.fault()
		w.follow(func() { w.reporter.Reconciled(ref("slice"), []prepare.Answer{answer(first + "-mig-19-0")}) })
		w.is("well again", "slice", driver+" "+first+"-mig-19-0 Healthy=True Recovered", driver+" "+first+"-mig-19-0 Ready=True Prepared")
		if want := "1x Normal GPURecovered ResourceClaim/slice: " + first + "-mig-19-0 recovered: XID79 ended"; !slices.Contains(w.events(), want) {
			t.Errorf("not reported: %s\n%v", want, w.events())
		}
		w.follow(func() { w.reporter.Unprepared(ref("slice")) })
		w.is("taken back", "slice")
	})
}

// Nothing is concluded while the node is not known, and nothing of claims that are not prepared.
func TestHealthUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := hospital(t)
		w.ward.change(func(w *ward) { w.node.GPUs[1].Lost = true })
		w.follow(func() {})
		lost := driver + " " + second + " Healthy=False GPULost " + second + ": lost: the GPU does not respond; check the kernel log for an XID; if the GPU does not recover, reboot the node"
		w.is("lost", "whole", lost, driver+" "+second+" Ready=True Prepared")

		w.ward.change(func(w *ward) { w.known, w.node.GPUs = false, nil })
		w.start()
		w.follow(func() { w.reporter.Reconciled(ref("whole"), []prepare.Answer{answer(second)}) })
		w.is("the node is not known", "whole", lost, driver+" "+second+" Ready=True Prepared")

		w.ward.change(func(w *ward) {
			w.known, w.node = true, gputest.Node(t, "h100x2")
			w.records[0].State, w.records[1].BootID = prepare.StateUnpreparing, "before"
			w.broken = errors.New("input/output error")
		})
		w.follow(func() {
			w.ward.fault(fault(first, 79, gpu.Fatal, gpu.Placement{}))
			synctest.Wait()
			w.is("the records cannot be read", "share", driver+" "+first+"-timeshare s1 Ready=True Prepared")
			w.ward.mu.Lock()
			w.ward.broken = nil
			w.ward.mu.Unlock()
			time.Sleep(recordsRetryDelay + writeDelay)
		})
		w.is("being taken back", "slice", driver+" "+first+"-mig-19-0 Ready=True Prepared")
		w.is("of another boot", "neighbour", driver+" "+first+"-mig-19-1 Ready=True Prepared")
		if got := w.lines("share"); len(got) != 3 || got[0] == driver+" "+first+"-timeshare s1 Ready=True Prepared" {
			t.Errorf("after the records could be read: %q", got)
		}
	})
}

// A claim that is prepared on a sick device is told at once.
func TestPreparedOnUnhealthyDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, second := hospital(t)
		w.ward.change(func(w *ward) {
			w.node.GPUs[1].Faults = []gpu.Fault{fault(second, 48, gpu.Fatal, gpu.Placement{})}
		})
		w.run(func() { w.reporter.Prepared(ref("whole"), []prepare.Answer{answer(second)}) })
		if got := w.lines("whole")[0]; got != driver+" "+second+" Healthy=False XID48 "+second+": XID 48 since 2026-11-22T18:00:00Z: "+advice(48) {
			t.Error(got)
		}
	})
}

// A fault that comes and goes every minute for an hour is told every five minutes.
func TestFlappingFaultWritesNoRepeatedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, _ := hospital(t)
		w.follow(func() {
			for range 60 {
				w.ward.fault(fault(first, 79, gpu.Fatal, gpu.Placement{}))
				time.Sleep(30 * time.Second)
				w.ward.fault()
				time.Sleep(30 * time.Second)
			}
		})
		message := first + ": XID 79"
		w.expectReports("after an hour", "default", "12x Normal GPURecovered Node/node1: "+message+" is over", "12x Warning GPUUnhealthy Node/node1: "+message+": "+advice(79)+" (Fatal)")
		if n := len(w.events()); n > 20 {
			t.Errorf("%d events of claims and pods: %v", n, w.events())
		}
	})
}

// Of the driver the Node is told once, however many GPUs wait for it; what only warns is told of the Node and not of claims.
func TestFaultsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, first, second := hospital(t)
		w.follow(func() {
			w.ward.change(func(w *ward) {
				for i, name := range []string{first, second} {
					w.node.GPUs[i].Faults = []gpu.Fault{{GPU: name, Signal: gpu.SignalDriver, Severity: gpu.Critical, Since: fell}}
				}
			})
			time.Sleep(time.Second)
			w.ward.change(func(w *ward) {
				w.node.GPUs[0].Faults = []gpu.Fault{{GPU: first, Signal: gpu.SignalHeat, Severity: gpu.Warning, Since: fell}}
				w.node.GPUs[1].Faults = nil
			})
		})
		j, heat := gpu.Rules{}.Judge(gpu.SignalDriver, 0), gpu.Rules{}.Judge(gpu.SignalHeat, 0)
		w.expectReports("the driver was away", "default",
			"1x Normal GPURecovered Node/node1: node1: driver is over",
			"1x Warning GPUUnhealthy Node/node1: "+first+": heat: "+heat.Meaning+"; "+heat.Help+" (Warning)",
			"1x Warning GPUUnhealthy Node/node1: node1: driver: "+j.Meaning+"; "+j.Help+" (Critical)")
		w.is("after it", "whole", driver+" "+second+" Healthy=True Recovered", driver+" "+second+" Ready=True Prepared")
	})
}
