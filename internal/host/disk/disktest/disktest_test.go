package disktest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// view is the content of the file.
func view(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "folder", "file"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// replace performs the steps on the file.
func replace(t *testing.T, d *disktest.Disk, text string, steps ...string) {
	t.Helper()
	path := filepath.Join(d.Dir(), "folder", "file")
	temporary := path + ".new"
	for _, step := range steps {
		switch step {
		case "in place":
			temporary = path
		case "write":
			file, err := d.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			must(t, err)
			_, err = file.Write([]byte(text))
			must(t, errors.Join(err, file.Close()))
		case "sync":
			file, err := d.OpenFile(temporary, os.O_WRONLY, 0)
			must(t, err)
			must(t, errors.Join(file.Sync(), file.Close()))
		case "rename":
			must(t, d.Rename(temporary, path))
			temporary = path
		case "sync the folder":
			must(t, disk.SyncFolder(d, filepath.Dir(path)))
		case "remove":
			must(t, d.Remove(path))
		}
	}
	d.Returned()
}

// CheckPowerLoss finds each sync that is missing or too late, and accepts the right order.
func TestCheckPowerLoss(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps []string
		sound bool
	}{
		"in order":                   {[]string{"write", "sync", "rename", "sync the folder"}, true},
		"removed":                    {[]string{"remove", "sync the folder"}, true},
		"written in place":           {[]string{"in place", "write", "sync", "sync the folder"}, false},
		"content not synced":         {[]string{"write", "rename", "sync the folder"}, false},
		"content synced too late":    {[]string{"write", "rename", "sync", "sync the folder"}, false},
		"folder not synced":          {[]string{"write", "sync", "rename"}, false},
		"folder synced too early":    {[]string{"write", "sync", "sync the folder", "rename"}, false},
		"removal without a sync":     {[]string{"remove"}, false},
		"rewritten without any sync": {[]string{"remove", "in place", "write"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := disktest.New(t, disktest.Folder(t))
			must(t, disk.MakeDurableFolder(d, filepath.Join(d.Dir(), "folder"), 0o700))
			replace(t, d, "old content", "write", "sync", "rename", "sync the folder")
			replace(t, d, "new content", test.steps...)
			tried, wrong := d.CheckPowerLoss(t, view)
			if test.sound != (len(wrong) == 0) {
				t.Errorf("%d states, %d wrong: %.200v", tried, len(wrong), wrong)
			}
		})
	}
}

// A folder that was made without a sync of its parent is lost with all files in it, synced or not.
func TestFolderIsLostWithItsFiles(t *testing.T) {
	t.Parallel()
	for durable, makeFolder := range map[bool]func(disk.FileSystem, string, os.FileMode) error{false: disk.MakeFolder, true: disk.MakeDurableFolder} {
		d := disktest.New(t, disktest.Folder(t))
		must(t, makeFolder(d, filepath.Join(d.Dir(), "folder"), 0o700))
		must(t, atomicfile.Write(filepath.Join(d.Dir(), "folder", "file"), []byte("text"), atomicfile.Options{Mode: 0o600, Files: d}))
		d.Returned()
		if _, wrong := d.CheckPowerLoss(t, view); durable != (len(wrong) == 0) {
			t.Errorf("durable folder %t: %d wrong", durable, len(wrong))
		}
	}
}

func TestFaultsReachOnlyTheDisk(t *testing.T) {
	t.Parallel()
	d := disktest.New(t, disktest.Folder(t))
	d.Fail(disktest.Broken)
	must(t, atomicfile.Write(filepath.Join(t.TempDir(), "elsewhere"), nil, atomicfile.Options{Mode: 0o600, Files: d}))
	if err := d.Mkdir(filepath.Join(d.Dir(), "folder"), 0o700); err == nil {
		t.Error("no fault")
	}
}
