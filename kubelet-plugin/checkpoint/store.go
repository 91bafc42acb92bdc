package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// suffix ends the name of a record, aside the one of a record that was set aside, before its number.
const (
	suffix = ".json"
	aside  = ".unreadable-"
)

// Store keeps records in a folder. It is safe for concurrent use by several processes over the same
// folder, as long as one claim's calls of Save and Delete are serialized. It implements
// prepare.Records.
type Store struct {
	dir    string
	report func(path string, err error)
	// reported are the paths of records of newer agents that were reported.
	reported sync.Map
	// files is the file system of writes; nil means that of the process.
	files atomicfile.FileSystem
}

// Open returns the store in the folder, which is created when it is missing. Every file that cannot
// be read is reported, with where it lies now and why; report may be called by any call of the store.
func Open(dir string, report func(path string, err error)) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the records: %w", err)
	}
	return &Store{dir: dir, report: report}, nil
}

// Load returns the record of the claim, prepare.ErrNoRecord when there is none, or prepare.Unreadable
// when it had to be set aside, now or earlier.
func (s *Store) Load(uid string) (prepare.Record, error) {
	r, err := s.read(uid)
	switch {
	case err == nil:
		return r, nil
	case !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist):
		return prepare.Record{}, fmt.Errorf("record of claim %s: %w", uid, err)
	}
	before, err := s.damagedFiles(uid)
	switch {
	case err != nil:
		return prepare.Record{}, fmt.Errorf("record of claim %s: %w", uid, err)
	case len(before) > 0:
		return prepare.Record{}, &prepare.UnreadableRecord{Claim: salvage(before, uid)}
	}
	return prepare.Record{}, fmt.Errorf("claim %s: %w", uid, prepare.ErrNoRecord)
}

// Save writes the record and returns after it is on the disk.
func (s *Store) Save(r prepare.Record) error {
	old, err := os.ReadFile(s.path(r.UID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("save the record of claim %s: %w", r.Ref, err)
	}
	data, err := encode(r, old)
	if err == nil {
		err = atomicfile.Write(s.path(r.UID), data, fileOptions(s.files))
	}
	if err != nil {
		return fmt.Errorf("save the record of claim %s: %w", r.Ref, err)
	}
	return nil
}

// Delete removes the record with everything that was set aside for the claim, and returns after that
// is on the disk. A missing record is no error.
func (s *Store) Delete(uid string) error {
	before, err := s.damagedFiles(uid)
	if err != nil {
		return fmt.Errorf("delete the record of claim %s: %w", uid, err)
	}
	// The record goes last: what was set aside must not outlive it and stand for it.
	if err := atomicfile.Remove(fileOptions(s.files), append(before, atomicfile.TemporaryPath(s.path(uid)), s.path(uid))...); err != nil {
		return fmt.Errorf("delete the record of claim %s: %w", uid, err)
	}
	return nil
}

// List returns every readable record by UID. What cannot be read is set aside and reported.
func (s *Store) List() ([]prepare.Record, error) {
	records, _, err := s.list()
	return records, err
}

// Held returns everything that the records hold: what a claim only watches (admin access) it does not
// hold. all is false while there is a record that cannot be read, so that there may be more.
func (s *Store) Held() (held []gpu.Device, all bool, err error) {
	records, all, err := s.list()
	for _, r := range records {
		for _, w := range r.Wanted {
			if !w.Admin {
				held = append(held, w.Use)
			}
		}
	}
	return held, all, err
}

// Count returns how many claims have a record of the boot, whatever its state. A record that cannot be read counts: what it
// holds is not known.
func (s *Store) Count(bootID string) (int, error) {
	return s.count(func(r prepare.Record) bool { return r.BootID == bootID })
}

// CountOn returns how many claims of the boot hold something of one of the GPUs (prepare.Record.Holds). A record that cannot be read counts.
func (s *Store) CountOn(bootID string, gpus []string) (int, error) {
	return s.count(func(r prepare.Record) bool { return r.BootID == bootID && r.Holds(gpus) })
}

// count returns how many claims have a record that is chosen or cannot be read.
func (s *Store) count(chosen func(prepare.Record) bool) (int, error) {
	records, _, err := s.list()
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("count the records: %w", err)
	}
	claims := map[string]bool{}
	for _, entry := range entries {
		if uid, _, is := strings.Cut(entry.Name(), suffix); is && !strings.HasPrefix(uid, ".") && entry.Type().IsRegular() {
			claims[uid] = true
		}
	}
	for _, r := range records {
		if !chosen(r) {
			delete(claims, r.UID)
		}
	}
	return len(claims), nil
}

// list returns every readable record by UID, and whether there is none that is not.
func (s *Store) list() (records []prepare.Record, all bool, err error) {
	found, err := s.readFolder()
	if err != nil {
		return nil, false, fmt.Errorf("list the records: %w", err)
	}
	all = !found.aside
	for _, uid := range found.uids {
		r, err := s.read(uid)
		var newer *newerError
		switch {
		case err == nil:
			records = append(records, r)
		case errors.Is(err, errDamaged), errors.As(err, &newer):
			all = false
		case !errors.Is(err, fs.ErrNotExist):
			return nil, false, fmt.Errorf("list the records: %w", err)
		}
	}
	return records, all, nil
}

// contents are what the folder holds.
type contents struct {
	// uids are the claims that have a record, ascending.
	uids []string
	// aside reports that a record was set aside.
	aside bool
}

func (s *Store) readFolder() (contents, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return contents{}, err
	}
	var found contents
	for _, entry := range entries {
		uid, is := strings.CutSuffix(entry.Name(), suffix)
		switch {
		case is && !strings.HasPrefix(uid, ".") && entry.Type().IsRegular():
			found.uids = append(found.uids, uid)
		case strings.Contains(entry.Name(), suffix+aside):
			found.aside = true
		}
	}
	slices.Sort(found.uids)
	return found, nil
}

func (s *Store) path(uid string) string { return filepath.Join(s.dir, uid+suffix) }
