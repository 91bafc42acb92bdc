package verify

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEachSuiteFailsTheLab runs `make test-lab` with programs in the place of the suites, of which each can fail, and end before the other one. The status of
// the suite that ended first was lost.
func TestEachSuiteFailsTheLab(t *testing.T) {
	program := filepath.Join(t.TempDir(), "suite")
	const text = "#!/bin/sh\ncase \"$*\" in *tests/installation*) sleep $FIRST_SLEEP; exit $FIRST;; esac\nsleep $SECOND_SLEEP; exit $SECOND\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		first, second int
		slow          string
	}{
		{0, 0, "FIRST"}, {1, 0, "FIRST"}, {1, 0, "SECOND"}, {0, 1, "FIRST"}, {0, 1, "SECOND"}, {1, 1, "SECOND"},
	} {
		cmd := exec.CommandContext(t.Context(), "make", "-C", root(t), "-o", "lab", "-o", program, "test-lab", "SPECS="+program, "GINKGO="+program)
		cmd.Env = append(os.Environ(), fmt.Sprintf("FIRST=%d", test.first), fmt.Sprintf("SECOND=%d", test.second), "FIRST_SLEEP=0", "SECOND_SLEEP=0", test.slow+"_SLEEP=.5")
		out, err := cmd.CombinedOutput()
		if failed := test.first+test.second > 0; (err != nil) != failed {
			t.Errorf("statuses %d and %d, %s ends last: make ends with %v\n%s", test.first, test.second, strings.ToLower(test.slow), err, out)
		}
	}
}
