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
	if err := c.put(main, []byte(text)); err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, len(text))
	n, err := open.ReadAt(seen, 0)
	if string(seen[:n]) != old {
		t.Errorf("the file that was open changed: %d bytes, %v", n, err)
	}
	if files := disk(t, c); files[main] != text || len(files) != 1 {
		t.Errorf("%d files, the configuration has %d bytes", len(files), len(files[main]))
	}
}

// TestWriteIsUndoneWhenAFileFails checks that if one of several files cannot be written, those before it are restored, also
// absent ones: the runtime never reads a partial change.
func TestWriteIsUndoneWhenAFileFails(t *testing.T) {
	const drop = "/etc/containerd/conf.d/99-own.toml"
	c, _ := node(t, main, map[string]string{main: usual, "/etc/file": "no folder"})
	before := disk(t, c)
	err := c.write(Plan{Write: []File{
		{Path: drop, Text: []byte("version = 2\n")},
		{Path: main, Before: []byte(usual), Text: []byte("imports = []\n" + usual)},
		{Path: "/etc/file/below.toml", Text: []byte("version = 2\n")},
	}})
	if err == nil || !strings.Contains(err.Error(), "/etc/file/below.toml") {
		t.Fatalf("got error %v", err)
	}
	after := disk(t, c)
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
