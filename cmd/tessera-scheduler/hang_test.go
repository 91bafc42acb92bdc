package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tessera-gpu/tessera/internal/liveness"
)

// hangVariable makes the test's binary a scheduler whose cycle hangs.
const hangVariable = "TESSERA_TEST_HANG"

// A scheduler whose cycle hangs ends with an error after it has logged its goroutines; one without a hang goes on until its context ends.
func TestEndIfHung(t *testing.T) {
	if os.Getenv(hangVariable) != "" {
		w := &liveness.Work{Name: "the scheduling cycle", Limit: time.Millisecond}
		w.Begin()
		endIfHung(t.Context(), w.Await)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndIfHung$")
	cmd.Env = append(os.Environ(), hangVariable+"=1")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ends with %v", err)
	}
	for _, want := range []string{"the scheduling cycle hangs", "goroutine ", "endIfHung"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("its log lacks %q:\n%s", want, output)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	endIfHung(ended, (&liveness.Work{Limit: time.Hour}).Await)
}
