package toolkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPutReplacesWholeFiles checks that files are replaced atomically: a runtime that has the old file open reads all of it, and never a part of the new one.
func TestPutReplacesWholeFiles(t *testing.T) {
	const old = "version = 2\n"
	c, _ := node(t, main, map[string]string{main: old})
	path := filepath.Join(c.Roots.Host, main)
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	text := strings.Repeat("# a longer configuration\n", 1000)
	if err := c.put(File{Path: main, Text: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, len(text))
	n, err := open.ReadAt(seen, 0)
	if string(seen[:n]) != old {
		t.Errorf("the file that was open changed: %d bytes, %v", n, err)
	}
	if files := filesOf(t, c); files[main] != text || len(files) != 1 {
		t.Errorf("%d files, the configuration has %d bytes", len(files), len(files[main]))
	}
}

// TestWriteIsUndoneWhenAFileFails checks that if one of several files cannot be written, those before it are restored, also
// absent ones: the runtime never reads a partial change.
func TestWriteIsUndoneWhenAFileFails(t *testing.T) {
	const drop = "/etc/containerd/conf.d/99-own.toml"
	c, _ := node(t, main, map[string]string{main: usual, "/etc/file": "no folder"})
	before := filesOf(t, c)
	err := c.write(Plan{Write: []File{
		{Path: drop, Text: []byte("version = 2\n")},
		{Path: main, Before: []byte(usual), Text: []byte("imports = []\n" + usual)},
		{Path: "/etc/file/below.toml", Text: []byte("version = 2\n")},
	}})
	if err == nil || !strings.Contains(err.Error(), "/etc/file/below.toml") {
		t.Fatalf("got error %v", err)
	}
	after := filesOf(t, c)
	delete(after, main+kept)
	for path, text := range after {
		if before[path] != text {
			t.Errorf("%s is %q, before %q", path, text, before[path])
		}
	}
	if len(after) != len(before) {
		t.Errorf("files are %d, before %d", len(after), len(before))
	}
}

// TestCopiesOfTheConfigurationAreNoMoreReadable checks that the section in a drop-in and the copy of the main file, which may contain
// passwords of registries, have the mode of the file from which they were copied.
func TestCopiesOfTheConfigurationAreNoMoreReadable(t *testing.T) {
	const imported = "/etc/containerd/conf.d/10-own.toml"
	password := usual + "  [plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"registry.example\".auth]\n    password = \"secret\"\n"
	for name, test := range map[string]struct {
		files  map[string]string
		source string
		copies []string
	}{
		"section of the main file": {map[string]string{main: password}, main, []string{main + kept, "/etc/containerd/conf.d/" + dropIn}},
		"section of an imported file": {
			map[string]string{main: "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", imported: password},
			imported, []string{"/etc/containerd/conf.d/" + dropIn},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := node(t, main, test.files)
			if err := os.Chmod(filepath.Join(c.Roots.Host, test.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if result, _ := c.Once(t.Context()); !result.Done {
				t.Fatal(result)
			}
			for _, path := range append(test.copies, test.source) {
				info, err := os.Stat(filepath.Join(c.Roots.Host, path))
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode() != 0o600 {
					t.Errorf("%s has the mode %o, its source %s has 600", path, info.Mode(), test.source)
				}
			}
		})
	}
}
