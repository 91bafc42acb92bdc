package handover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

func join(t *testing.T, dir, name string) *Instance {
	t.Helper()
	i, err := Join(nil, dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// die ends the instance as SIGKILL does: the file stays, the kernel closes it.
func (i *Instance) die(t *testing.T) {
	t.Helper()
	if err := i.file.Close(); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func newest(t *testing.T, i *Instance) bool {
	t.Helper()
	is, err := i.newest()
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func TestNewestLiveInstanceLeads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "instances")
	old := join(t, dir, "old")
	if !newest(t, old) {
		t.Fatal("alone, and not the newest")
	}
	young := join(t, dir, "young")
	if newest(t, old) || !newest(t, young) {
		t.Error("two live instances: the second must be the newest")
	}
	young.die(t)
	if !newest(t, old) {
		t.Error("the younger died: the older must lead again")
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{joinLock, spare, "young"}, files(t, dir)); diff != "" {
		t.Errorf("after the older left (-want +got):\n%s", diff)
	}
}

func TestJoinReplacesDeadAndRefusesDuplicate(t *testing.T) {
	dir := t.TempDir()
	join(t, dir, "dead").die(t)
	if err := os.WriteFile(filepath.Join(dir, "half-born"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	join(t, dir, "pod")
	if diff := cmp.Diff([]string{joinLock, "pod"}, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if _, err := Join(nil, dir, "pod"); err == nil {
		t.Error("a second process joined under the same name")
	}
}

// Two agents join and leave concurrently: one may have a file open that the other removes.
func TestJoinWhileAnotherLeaves(t *testing.T) {
	dir := t.TempDir()
	var agents sync.WaitGroup
	for _, name := range []string{"one", "other"} {
		agents.Go(func() {
			for range 2000 {
				i, err := Join(nil, dir, name)
				if err == nil {
					err = i.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	agents.Wait()
}

func TestRestartedPodIsNewest(t *testing.T) {
	dir := t.TempDir()
	pod, other := join(t, dir, "pod"), join(t, dir, "other")
	pod.die(t)
	again := join(t, dir, "pod")
	if newest(t, other) || !newest(t, again) {
		t.Error("the restarted pod joined last and must lead")
	}
}

// speaker records when its instance leads.
type speaker struct {
	began, ended chan struct{}
	stop         context.CancelFunc
	result       chan error
}

func lead(t *testing.T, i *Instance) *speaker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &speaker{began: make(chan struct{}, 8), ended: make(chan struct{}, 8), stop: cancel, result: make(chan error, 1)}
	go func() {
		s.result <- i.Lead(ctx, func(ctx context.Context) error {
			s.began <- struct{}{}
			<-ctx.Done()
			s.ended <- struct{}{}
			return ctx.Err()
		})
	}()
	t.Cleanup(cancel)
	return s
}

func expect(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(harness.Patience):
		t.Fatalf("%s: not within %v", what, harness.Patience)
	}
}

func TestLeadStartsAndStops(t *testing.T) {
	dir := t.TempDir()
	old := join(t, dir, "old")
	first := lead(t, old)
	expect(t, "the first speaks", first.began)

	young := join(t, dir, "young")
	expect(t, "the first stops leading", first.ended)
	second := lead(t, young)
	expect(t, "the second speaks", second.began)
	select {
	case <-first.began:
		t.Error("the first leads at the same time as the second")
	default:
	}

	second.stop()
	expect(t, "the second ends", second.ended)
	if err := <-second.result; err != nil {
		t.Errorf("Lead after its context ended: %v", err)
	}
	young.die(t)
	expect(t, "the first speaks again after the second died", first.began)

	third := join(t, dir, "third")
	expect(t, "the first stops leading again", first.ended)
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, "the first speaks again after the third left", first.began)
}

// TestFollowerRechecksWithoutChange releases the newer one's lock without anything that the folder tells.
func TestFollowerRechecksWithoutChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		old, young := join(t, dir, "old"), join(t, dir, "young")
		ctx, cancel := context.WithCancel(t.Context())
		began, result := make(chan struct{}), make(chan error)
		go func() {
			result <- old.updateLeadership(ctx, make(chan struct{}), func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		if err := unix.FcntlFlock(young.file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK}); err != nil {
			t.Fatal(err)
		}
		<-began
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

func TestLeadReturnsError(t *testing.T) {
	want := errors.New("no API server")
	err := join(t, t.TempDir(), "pod").Lead(t.Context(), func(context.Context) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("Lead: %v, want %v", err, want)
	}
}
