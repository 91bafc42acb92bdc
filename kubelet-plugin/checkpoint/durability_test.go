package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
)

// disk is a file system that records the calls that make a write durable, and fails the call that fail names.
type disk struct {
	calls []string
	fail  string
}

var errDisk = errors.New("input/output error")

func (d *disk) call(name, path string) error {
	call := name + " " + filepath.Base(path)
	d.calls = append(d.calls, call)
	if call == d.fail {
		return errDisk
	}
	return nil
}

func (d *disk) OpenFile(path string, flag int, mode fs.FileMode) (atomicfile.File, error) {
	file, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: file, disk: d}, nil
}

func (d *disk) Rename(from, to string) error {
	if err := d.call("rename", from); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (d *disk) Remove(path string) error {
	if err := d.call("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

type diskFile struct {
	*os.File
	disk *disk
}

func (f *diskFile) Write(text []byte) (int, error) {
	if err := f.disk.call("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.Write(text)
}

func (f *diskFile) Sync() error {
	if err := f.disk.call("sync", f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}

// A record is durable when Save returns: its content is synced before it replaces the old one, and then its folder is
// synced. Otherwise a power failure could leave an empty or the old record of a claim that was reported to kubelet as
// prepared.
func TestSaveSyncsRecord(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "claims")
	s, _ := open(t, dir)
	d := &disk{}
	s.files = d
	if err := s.Save(whole("a", "gpu-0")); err != nil {
		t.Fatal(err)
	}
	want := []string{"write .a.json.tmp", "sync .a.json.tmp", "rename .a.json.tmp", "sync claims"}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("Save (-want +got):\n%s", diff)
	}
	d.calls = nil
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(d.calls, "remove a.json") || d.calls[len(d.calls)-1] != "sync claims" {
		t.Errorf("Delete: %v, want the removal and then a sync of the folder", d.calls)
	}
}

// A record that cannot be made durable is an error, and the old one stays unless it has been replaced already.
func TestSaveReportsFailedSync(t *testing.T) {
	t.Parallel()
	for fail, want := range map[string]string{
		"write .a.json.tmp": "gpu-0", "sync .a.json.tmp": "gpu-0", "rename .a.json.tmp": "gpu-0", "sync claims": "gpu-1",
	} {
		dir := filepath.Join(t.TempDir(), "claims")
		s, _ := open(t, dir)
		if err := s.Save(whole("a", "gpu-0")); err != nil {
			t.Fatal(err)
		}
		s.files = &disk{fail: fail}
		if err := s.Save(whole("a", "gpu-1")); !errors.Is(err, errDisk) {
			t.Errorf("%s fails: Save returned %v", fail, err)
		}
		r, err := s.Load("a")
		if err != nil || r.Wanted[0].Device != want {
			t.Errorf("%s fails: record %+v, %v, want that of %s", fail, r, err, want)
		}
	}
}

func TestSaveHealthSyncs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "health")
	h, _ := openHealth(t, dir)
	d := &disk{}
	h.files = d
	health := gpu.Health{Boot: "boot", Faults: []gpu.Fault{{GPU: "gpu-0", Signal: gpu.SignalXID, XID: 79, Severity: gpu.Fatal}}}
	if saved, err := h.SaveHealth(health, func() bool { return true }); !saved || err != nil {
		t.Fatal(saved, err)
	}
	var got []string
	for _, call := range d.calls {
		got = append(got, strings.Fields(call)[0])
	}
	if diff := cmp.Diff([]string{"write", "sync", "rename", "sync"}, got); diff != "" {
		t.Errorf("%v (-want +got):\n%s", d.calls, diff)
	}
	d.calls, d.fail = nil, d.calls[1]
	if saved, err := h.SaveHealth(gpu.Health{Boot: "other"}, func() bool { return true }); saved || !errors.Is(err, errDisk) {
		t.Errorf("the sync fails: %t, %v", saved, err)
	}
}
