package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// The installer reports why a validation failed from the termination message. The log does not suffice: its last line can be that of a device that computed.
func TestFailedValidationIsTheTerminationMessage(t *testing.T) {
	log := filepath.Join(t.TempDir(), "termination-log")
	validation := validateCommand()
	validation.SetArgs([]string{"--termination-log", log})
	validation.SetOut(io.Discard)
	validation.SetErr(io.Discard)
	err := validation.ExecuteContext(t.Context())
	if err == nil {
		t.Skip("this machine has a GPU that computes")
	}
	message, reading := os.ReadFile(log)
	if reading != nil || string(message) != err.Error() {
		t.Errorf("termination message %q, %v, want %q", message, reading, err)
	}
}
