package expect

import "testing"

func TestSettled(t *testing.T) {
	running := func(expected, told string) Outcome {
		return Outcome{
			Subject: Subject{Expectation: Expectation{Phase: Running, View: View{TimeSlice: expected}}},
			Phase:   Running, Pods: []Pod{{Containers: []Container{{Name: "main", Grants: []Grant{{Device: "a", TimeSlice: told}}}}}},
		}
	}
	ended := running("Long", "")
	ended.Phase = Succeeded
	late := running("Long", "Long")
	late.Subject.Expectation.Phase = Succeeded
	for name, test := range map[string]struct {
		outcome Outcome
		want    bool
	}{
		"runs":                               {running("", ""), true},
		"runs, and is to end":                {late, false},
		"runs, and its claim does not tell":  {running("Long", ""), false},
		"runs, and its claim tells":          {running("Long", "Long"), true},
		"runs, and its claim tells of other": {running("Long", "Short"), true},
		"ended, and nothing more is written": {ended, true},
	} {
		if got := test.outcome.settled(); got != test.want {
			t.Errorf("%s: settled %t", name, got)
		}
	}
}
