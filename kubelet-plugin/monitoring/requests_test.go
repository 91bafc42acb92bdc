package monitoring

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

var errInUse = errors.New("nvmlDeviceSetMigMode: In use by another client (19)")

const gpuName = "gpu-0000-3b-00-0"

func requests(removable bool, holders ...string) *Requests {
	return New(Config{Removable: removable, Holders: func() []string { return holders }})
}

func states(r *Requests) string {
	var list []string
	for _, c := range r.Status() {
		list = append(list, c.GPU+" "+string(c.State))
	}
	return strings.Join(list, ", ")
}

// Without an installer, nothing removes monitoring: the claim's message names the programs.
func TestRetryWithoutInstaller(t *testing.T) {
	r := requests(false, "dcgm-exporter (4711)")
	err := r.Retry(t.Context(), gpuName, errInUse)
	if !errors.Is(err, errInUse) || !strings.HasSuffix(err.Error(), "end dcgm-exporter (4711) or move their pods to other nodes") {
		t.Errorf("got %v", err)
	}
	if r.Status() != nil {
		t.Errorf("requests %v, want none", r.Status())
	}
	if err := requests(false).Retry(t.Context(), gpuName, errInUse); err == nil || !strings.Contains(err.Error(), "fuser -v /dev/nvidia*") {
		t.Errorf("no known program: %v", err)
	}
}

// Ten refusals end the attempt: monitoring returns, the message names what is in use, and the next attempt comes after a pause that doubles.
func TestRetryGivesUpAfterTenRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests(true, "nv-hostengine (9)")
		for pause := 5 * time.Minute; pause <= 20*time.Minute; pause *= 2 {
			begin := time.Now()
			for range maxRefusals - 1 {
				if err := r.Retry(t.Context(), gpuName, errInUse); err != nil {
					t.Fatal(err)
				}
				if got := states(r); got != gpuName+" PausingMonitoring" {
					t.Fatalf("while retrying: %s", got)
				}
			}
			if took := time.Since(begin); took < 30*time.Second || took > 45*time.Second {
				t.Errorf("ten attempts take %v, want longer than a pod's grace period and less than a call of kubelet", took)
			}
			err := r.Retry(t.Context(), gpuName, errInUse)
			if !errors.Is(err, errInUse) || !strings.Contains(err.Error(), "refused 10 times") || !strings.Contains(err.Error(), "nv-hostengine (9)") {
				t.Fatalf("the tenth refusal: %v", err)
			}
			want := []v1alpha1.BusyGPU{{GPU: gpuName, State: v1alpha1.BusyRefused, Message: strings.TrimPrefix(err.Error(), errInUse.Error()+": ")}}
			if diff := cmp.Diff(want, r.Status()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			time.Sleep(pause - time.Second)
			if again := r.Retry(t.Context(), gpuName, errInUse); again == nil || again.Error() != err.Error() {
				t.Errorf("during the pause of %v: %v, want %v at once", pause, again, err)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests(true)
		if err := r.Retry(t.Context(), gpuName, errInUse); err != nil {
			t.Fatal(err)
		}
		if r.Done(gpuName); r.Status() != nil {
			t.Errorf("after the change: %v", r.Status())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := r.Retry(ctx, gpuName, errInUse); !errors.Is(err, errInUse) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of kubelet's call: %v", err)
		}
		if got := states(r); got != gpuName+" PausingMonitoring" {
			t.Errorf("until kubelet's next call: %q", got)
		}
		time.Sleep(expiry + time.Second)
		if r.Status() != nil {
			t.Errorf("without another attempt: %v", r.Status())
		}
	})
}

// TestPinned: monitoring leaves when a MIG device that no process uses was refused for two minutes, and returns after two more; the next attempt comes after a
// pause that doubles, and two minutes.
func TestPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests(true, "dcgm-exporter (9)")
		tries := func(what string, during time.Duration, want, message string) {
			t.Helper()
			for begin := time.Now(); time.Since(begin) < during; time.Sleep(10 * time.Second) { // as kubelet does
				err := r.Pinned(gpuName, errInUse)
				if !errors.Is(err, errInUse) || !strings.Contains(err.Error(), message) {
					t.Fatalf("%s: got %v, want %q in it", what, err, message)
				}
				if got := states(r); got != want {
					t.Fatalf("%s: got %q, want %q", what, got, want)
				}
			}
		}
		for pause := 5 * time.Minute; pause <= 20*time.Minute; pause *= 2 {
			tries("at first", pinned, "", "monitoring leaves the node if this lasts 2m0s")
			tries("after two minutes", pinned, gpuName+" PausingMonitoring", "monitoring pods are leaving the node")
			tries("during the pause", pause, gpuName+" Refused", "end dcgm-exporter (9) or move their pods")
		}
	})
}

func TestPinnedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests(true)
		pin := func() {
			for range 14 {
				_ = r.Pinned(gpuName, errInUse)
				time.Sleep(10 * time.Second)
			}
		}
		pin()
		if r.Done(gpuName); states(r) != gpuName+" PausingMonitoring" {
			t.Errorf("after a change of the mode: %q", states(r))
		}
		if r.Destroyed(gpuName); r.Status() != nil {
			t.Errorf("after the device was destroyed: %v", r.Status())
		}
		pin()
		time.Sleep(expiry)
		if r.Status() != nil {
			t.Errorf("without another attempt: %v", r.Status())
		}
	})
	err := requests(false, "dcgm-exporter (4711)").Pinned(gpuName, errInUse)
	if !errors.Is(err, errInUse) || !strings.HasSuffix(err.Error(), "end dcgm-exporter (4711) or move their pods to other nodes") {
		t.Errorf("without an installer: %v", err)
	}
}
