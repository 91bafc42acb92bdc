package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s := NewSteps(registry)
		one, other := prepare.Ref{UID: "one"}, prepare.Ref{UID: "other"}
		create, verify := prepare.Step{Kind: prepare.CreateInstance}, prepare.Step{Kind: prepare.Verify}

		s.Observe(prepare.Before, one, create)
		<-time.After(time.Second)
		s.Observe(prepare.Before, other, create)
		<-time.After(time.Second)
		s.Observe(prepare.After, one, create)   // 2 s
		s.Observe(prepare.After, other, create) // 1 s
		s.Observe(prepare.Before, one, verify)  // fails
		<-time.After(time.Hour)
		s.Observe(prepare.Before, one, create)
		<-time.After(time.Second)
		s.Observe(prepare.After, one, create) // 1 s

		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range families[0].GetMetric() {
			got[m.GetLabel()[0].GetValue()+" count"] = float64(m.GetHistogram().GetSampleCount())
			got[m.GetLabel()[0].GetValue()+" sum"] = m.GetHistogram().GetSampleSum()
		}
		want := map[string]float64{"create-instance count": 3, "create-instance sum": 4}
		if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(families[0].GetName(), "tessera_prepare_step") {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if len(s.begun) != 0 {
			t.Errorf("still begun: %v", s.begun)
		}
	})
}
