package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// nvidia-smi requests from nvidia-persistenced that it close a GPU through /var/run/nvidia-persistenced/socket, which in the agent's pod is not the daemon's.
func TestLinkDaemons(t *testing.T) {
	run, daemons := t.TempDir(), map[string]string{"nvidia-persistenced": "/host/run/nvidia/driver/run/nvidia-persistenced"}
	find := func(daemon string) (string, error) {
		if folder := daemons[daemon]; folder != "" {
			return folder, nil
		}
		return "", errors.New("does not run")
	}
	expect := func(when, want string) {
		t.Helper()
		if err := linkDaemons(run, find); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got, _ := os.Readlink(filepath.Join(run, "nvidia-persistenced")); got != want {
			t.Errorf("%s: link to %q, want %q", when, got, want)
		}
	}
	expect("a driver container", daemons["nvidia-persistenced"])
	expect("the same again", daemons["nvidia-persistenced"])
	daemons["nvidia-persistenced"] = "/host/run/nvidia-persistenced"
	expect("a driver of the host", "/host/run/nvidia-persistenced")
	delete(daemons, "nvidia-persistenced")
	expect("no daemon", "")

	folder := filepath.Join(run, "nvidia-fabricmanager")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	daemons["nvidia-fabricmanager"] = "/host/run/nvidia-fabricmanager"
	expect("a folder of the host itself", "")
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		t.Errorf("the folder was replaced: %v, %v", info, err)
	}
	if err := linkDaemons(filepath.Join(run, "missing"), find); err == nil {
		t.Error("no error without a run folder")
	}
}
