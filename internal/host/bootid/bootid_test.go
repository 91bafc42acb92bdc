package bootid

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	proc := t.TempDir()
	if _, err := Read(proc); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	folder := filepath.Join(proc, "sys/kernel/random")
	const id = "5c1a7f4e-2b52-4f1e-9c3c-3a4d0c9a3b11"
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "boot_id"), []byte(id+"\n"), 0o444)); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(proc); got != id || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
