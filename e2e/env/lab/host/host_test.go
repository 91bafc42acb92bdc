package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNeedIsMetByAnyOfItsFiles(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "tool")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	tests := []struct {
		name  string
		files []string
		want  bool
	}{
		{"path", []string{program}, true},
		{"second path", []string{"/no/such/file", program}, true},
		{"program in PATH", []string{"tool"}, true},
		{"absent path", []string{"/no/such/file"}, false},
		{"absent program", []string{"no-such-tool"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := (Need{Package: "p", Files: test.files}).met(); got != test.want {
				t.Errorf("met is %t, want %t", got, test.want)
			}
		})
	}
}

func TestWhoIsAskedForRootLearnsWhatFor(t *testing.T) {
	text := Touches("/run/some-lab", "/var/some-cache")
	for _, want := range []string{"/run/some-lab", "/var/some-cache", "packages", "lab down", "control groups", inotifySetting} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not mentioned in:\n%s", want, text)
		}
	}
	err := CheckRoot("/run/some-lab", "/var/some-cache")
	if isRoot := os.Geteuid() == 0; isRoot != (err == nil) || err != nil && !errors.Is(err, ErrNotRoot) {
		t.Errorf("as user %d: %v", os.Geteuid(), err)
	}
}
