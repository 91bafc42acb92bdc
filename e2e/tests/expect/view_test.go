package expect

import "testing"

// TestLogGrows compares logs before and after their last lines: a log is read until everything is there that is expected.
func TestLogGrows(t *testing.T) {
	const used = `{"devices":[],"allocatedMiB":1,"refused":2}` + "\n"
	seen, carved := report(gpuA), list("GPU-a", "1g.10gb", "2g.20gb")
	whole := []Grant{wholeGrant("a", "GPU-a")}
	two := []Grant{migGrant("a-19-0", "GPU-a", "1g.10gb", 16), migGrant("a-14-2", "GPU-a", "2g.20gb", 32)}
	for name, test := range map[string]struct {
		view        string
		grants      []Grant
		short, full string
	}{
		"the report":                {"gpus: 1", whole, "warning\n" + seen[:9], "warning\n" + seen},
		"a list of two GPUs":        {"gpus: 2", append(whole, wholeGrant("b", "GPU-b")), list("GPU-a"), list("GPU-a") + list("GPU-b")},
		"a list of MIG devices":     {"mig: ['*', '*']", two, list("GPU-a", "1g.10gb"), carved},
		"a list without its MIG":    {"mig: ['*', '*']", two, list("GPU-a"), carved},
		"a GPU that is not watched": {"watches: 1", []Grant{shareGrant("monitor", "GPU-a", "", Share{})}, "", list("GPU-a")},
		"a text":                    {"log: Test PASSED", nil, "Test", "Test PASSED\n"},
		"a text after the report":   {"gpus: 1\nlog: LONG", whole, seen, seen + "LONG\n"},
		"a text before the report":  {"gpus: 1\nlog: LONG", whole, "LONG\n", "LONG\n" + seen},
		"a share after the report":  {"gpus: 1\nallocates: 1Mi", whole, seen, seen + used},
		"a share before the report": {"gpus: 1\nallocates: 1Mi", whole, used, used + seen},
		"a share alone":             {"multiprocessors: 1", nil, "warning\n", used},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Parse(test.view)
			if err != nil {
				t.Fatal(err)
			}
			if complaints := compareContainer(e.View, Container{Log: test.short, Grants: test.grants}); len(complaints) == 0 {
				t.Errorf("%q is enough", test.short)
			}
			if complaints := compareContainer(e.View, Container{Log: test.full, Grants: test.grants}); len(complaints) != 0 {
				t.Errorf("%q: %q", test.full, complaints)
			}
		})
	}
}
