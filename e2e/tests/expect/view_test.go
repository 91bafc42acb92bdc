package expect

import "testing"

// TestTold reads logs that grow: they are read on until all has come that the container is held to.
func TestTold(t *testing.T) {
	const seen, used = `{"gpus":[],"cuda":0}` + "\n", `{"devices":[],"allocatedMiB":1}` + "\n"
	for name, test := range map[string]struct {
		view         string
		short, whole string
	}{
		"the report":                {"gpus: 1", "warning\n" + seen[:9], "warning\n" + seen},
		"the report, no devices":    {"watches: 0", "", seen},
		"a text":                    {"log: Test PASSED", "Test", "Test PASSED\n"},
		"a text after the report":   {"gpus: 1\nlog: LONG", seen, seen + "LONG\n"},
		"a text before the report":  {"gpus: 1\nlog: LONG", "LONG\n", "LONG\n" + seen},
		"a share after the report":  {"gpus: 1\nallocates: 1Mi", seen, seen + used},
		"a share before the report": {"gpus: 1\nallocates: 1Mi", used, used + seen},
		"a share alone":             {"multiprocessors: 1", "warning\n", used},
		"nothing of the log":        {"timeSlice: Long", "warning\n", seen},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Parse(test.view)
			if err != nil {
				t.Fatal(err)
			}
			if e.told(test.short) {
				t.Errorf("%q is enough", test.short)
			}
			if !e.told(test.whole) {
				t.Errorf("%q is not enough", test.whole)
			}
		})
	}
}
