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
	for name, arguments := range map[string][]string{
		"an unknown flag": {"-no-such-flag"}, "no version": {"-registry", "registry.example.com/tessera"}, "no registry": {"-version", "v1.2.3"},
		"no release": {"-publish", t.TempDir()},
	} {
		if err := run(t.Context(), arguments); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
