package main

import (
	"errors"
	"flag"
	"testing"
)

func TestFlags(t *testing.T) {
	if err := run(t.Context(), []string{"-help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v, want %v", err, flag.ErrHelp)
	}
	if err := run(t.Context(), []string{"-no-such-flag"}); err == nil || errors.Is(err, flag.ErrHelp) {
		t.Errorf("a flag that does not exist: %v", err)
	}
}
