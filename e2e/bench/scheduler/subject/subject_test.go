package subject

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tessera-gpu/tessera/e2e/bench/scheduler/fleet"
)

// A real scheduler binds all pods of a small cluster in memory, with either plugin.
func TestServe(t *testing.T) {
	orders := ""
	for _, b := range []fleet.Batch{{Name: "warm", Pods: 2, Mix: fleet.Whole}, {Name: "measured", Pods: 10, Mix: fleet.Mixed}} {
		text, err := json.Marshal(order{Batch: b, Limit: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		orders += string(text) + "\n"
	}
	for _, v := range []Variant{InTree, Ours} {
		t.Run(string(v), func(t *testing.T) {
			var out bytes.Buffer
			if err := Serve(t.Context(), Spec{Variant: v, Fleet: fleet.Spec{Nodes: 4}, Level: fleet.Half}, strings.NewReader(orders), &out); err != nil {
				t.Fatal(err)
			}
			var started, warm, o Outcome
			outcomes := json.NewDecoder(&out)
			if err := errors.Join(outcomes.Decode(&started), outcomes.Decode(&warm), outcomes.Decode(&o)); err != nil {
				t.Fatal(err)
			}
			if o.Failure != "" || o.Bound != 10 || warm.Bound != 2 {
				t.Errorf("warm: %+v; measured: %+v", warm, o)
			}
			if len(o.Cycles) < 10 || o.CPU <= 0 || o.Took <= 0 || o.Histograms["scheduling_algorithm"].Count < 10 {
				t.Errorf("not everything was measured: %+v", o)
			}
		})
	}
}

// While the gate is shut no cycle begins, not even that of a pod which left the queue before.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := make(chan struct{}, 2)
		g := newGate()
		g.next = func(klog.Logger) (framework.QueuedEntityInfo, error) {
			<-queue
			return nil, nil
		}
		begun := 0
		go func() {
			for range 2 {
				_, _ = g.Next(klog.Background())
				begun++
				time.Sleep(time.Second)
			}
		}()
		queue <- struct{}{}
		synctest.Wait()
		if begun != 0 || g.Held() != 0 {
			t.Fatalf("shut from the start: %d cycles begun, %d held", begun, g.Held())
		}
		g.Open()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if cycles := g.Shut(); begun != 1 || len(cycles) != 1 || cycles[0] != time.Second {
			t.Fatalf("open: %d cycles begun, timed %v", begun, cycles)
		}
		queue <- struct{}{}
		synctest.Wait()
		if begun != 1 || g.Held() != 1 {
			t.Fatalf("shut again: %d cycles begun, %d held", begun, g.Held())
		}
		g.Open()
		synctest.Wait()
		if begun != 2 || g.Held() != 0 {
			t.Fatalf("open again: %d cycles begun, %d held", begun, g.Held())
		}
		time.Sleep(2 * time.Second) // until the last cycle has ended
	})
}

func TestHistogram(t *testing.T) {
	before := Histogram{Count: 2, Sum: 0.5, Buckets: []Bucket{{0.001, 1}, {0.002, 1}, {0.004, 0}}}
	now := Histogram{Count: 6, Sum: 0.51, Buckets: []Bucket{{0.001, 1}, {0.002, 3}, {0.004, 2}}}
	h := now.since(before)
	if h.Count != 4 || h.Mean().Round(time.Microsecond) != 2500*time.Microsecond {
		t.Errorf("since: %+v, mean %v", h, h.Mean())
	}
	for q, want := range map[float64]time.Duration{0.25: 1500 * time.Microsecond, 0.5: 2 * time.Millisecond, 0.75: 3 * time.Millisecond, 1: 4 * time.Millisecond} {
		if got := h.Quantile(q).Round(time.Microsecond); got != want {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	if got := (Histogram{}).Quantile(0.99); got != 0 {
		t.Errorf("quantile of nothing: %v", got)
	}
}
