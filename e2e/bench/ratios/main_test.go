package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	folder := func(value string) string {
		dir := t.TempDir()
		text := `[{"name": "latency", "value": ` + value + `, "unit": "ms", "better": "lower", "baseline": {"peer": 1}}]`
		if err := os.WriteFile(filepath.Join(dir, "node.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	before, slower := folder("1"), folder("1.5")
	if err := run([]string{before, slower}, io.Discard); err == nil || !strings.Contains(err.Error(), "worse by more than 1.30: node: latency") {
		t.Errorf("a ratio that is worse: %v", err)
	}
	if err := run([]string{"-most", "2", before, slower}, io.Discard); err != nil {
		t.Errorf("a ratio that may be worse: %v", err)
	}
	if err := run([]string{slower, before}, io.Discard); err != nil {
		t.Errorf("a ratio that is better: %v", err)
	}
	if err := run([]string{before}, io.Discard); err == nil {
		t.Error("one folder is accepted")
	}
}
