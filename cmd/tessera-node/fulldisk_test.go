package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/namespacetest"
)

// limitedDisk mounts a small file system at the folder, in the mount namespace of the test, and returns functions that fill it and that make it read-only or writable.
func limitedDisk(t *testing.T, folder string) (fill func(), readOnly func(on bool)) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func(flags uintptr) {
		if err := unix.Mount("tmpfs", folder, "tmpfs", flags, "size=64k,nr_inodes=32"); err != nil {
			t.Fatal(err)
		}
	}
	mount(0)
	t.Cleanup(func() { // so that the folder can be removed
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	fill = func() {
		var err error
		for i := 0; err == nil; i++ { // blocks first, then inodes: XFS has none without blocks
			path := filepath.Join(folder, fmt.Sprintf("other-%d", i))
			if err = os.WriteFile(path, make([]byte, 64<<10), 0o600); errors.Is(err, unix.ENOSPC) {
				_, err = os.Lstat(path)
			}
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return fill, func(on bool) {
		if on {
			mount(unix.MS_REMOUNT | unix.MS_RDONLY)
			return
		}
		mount(unix.MS_REMOUNT)
	}
}

// Releasing a claim needs no space: otherwise no pod with a GPU could end on a node with a full disk.
func TestUnprepareOnFullDisk(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	h := newMachine(t)
	before := h.kernel.State()
	fillClaims, _ := limitedDisk(t, filepath.Join(h.top, "claims"))
	fillLocks, _ := limitedDisk(t, filepath.Join(h.top, "locks"))
	p, known := h.agent(t, nil)
	c := h.claim(t, known.Node(), display)
	if _, err := p.Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	fillClaims()
	fillLocks()
	h.kernel.Open["7"] = true
	for range 2 {
		if err := p.Unprepare(t.Context(), c.Ref); err == nil || errors.Is(err, unix.ENOSPC) {
			t.Errorf("Unprepare while the virtual machine runs: %v", err)
		}
	}
	h.kernel.Open["7"] = false
	p, _ = h.agent(t, nil)
	if err := p.Unprepare(t.Context(), c.Ref); err != nil {
		t.Fatal(err)
	}
	h.clean(t, "after Unprepare", before)
}

// On a read-only disk the record cannot be removed: Unprepare changes nothing and names the cause, and succeeds when the disk is writable again.
func TestUnprepareOnReadOnlyDisk(t *testing.T) {
	if !namespacetest.InMountNamespace(t) {
		return
	}
	h := newMachine(t)
	before := h.kernel.State()
	_, claimsReadOnly := limitedDisk(t, filepath.Join(h.top, "claims"))
	p, known := h.agent(t, nil)
	c := h.claim(t, known.Node(), display)
	if _, err := p.Prepare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	claimsReadOnly(true)
	if err := p.Unprepare(t.Context(), c.Ref); !errors.Is(err, unix.EROFS) {
		t.Errorf("Unprepare: %v", err)
	}
	claimsReadOnly(false)
	if err := p.Unprepare(t.Context(), c.Ref); err != nil {
		t.Fatal(err)
	}
	h.clean(t, "after Unprepare", before)
}
