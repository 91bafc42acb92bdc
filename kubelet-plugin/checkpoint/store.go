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
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// suffix ends the name of a record's file. aside follows it in the name of a damaged file, before its number.
const (
	suffix = ".json"
	aside  = ".unreadable-"
)

// Store persists records in a folder. It is safe for concurrent use by several processes over the same folder, if the
// calls of Save and Delete for one claim are serialized. It implements prepare.Records.
type Store struct {
	dir    string
	report func(path string, err error)
	// reported are the paths of the records of newer agents that have been reported.
	reported sync.Map
	files    disk.FileSystem
}

// Open returns the store in the folder, which is created if it is missing. report is called for every file that cannot
// be read, with its present path and the reason; any method may call it.
func Open(files disk.FileSystem, dir string, report func(path string, err error)) (*Store, error) {
	if err := disk.MakeDurableFolder(files, dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the records: %w", err)
	}
	return &Store{files: files, dir: dir, report: report}, nil
}

// Load returns the record of the claim. The error wraps prepare.ErrNoRecord if there is none, and is a
// *prepare.UnreadableRecord if the record was damaged and set aside, now or earlier.
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
		return prepare.Record{}, salvage(before, uid)
	}
	return prepare.Record{}, fmt.Errorf("claim %s: %w", uid, prepare.ErrNoRecord)
}

// Save writes the record and returns once it is durable.
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

// Delete removes the record and the damaged files of the claim, and returns once that is durable. A missing record is
// not an error.
func (s *Store) Delete(uid string) error {
	before, err := s.damagedFiles(uid)
	if err != nil {
		return fmt.Errorf("delete the record of claim %s: %w", uid, err)
	}
	// The record is removed last: a damaged file must not outlive it, because Load would report it.
	if len(before) > 0 {
		err = atomicfile.Remove(fileOptions(s.files), before...)
	}
	if err == nil {
		err = atomicfile.Remove(fileOptions(s.files), atomicfile.TemporaryPath(s.path(uid)), s.path(uid))
	}
	if err != nil {
		return fmt.Errorf("delete the record of claim %s: %w", uid, err)
	}
	return nil
}

// List returns all readable records, ordered by UID. Unreadable ones are set aside or kept, and reported.
func (s *Store) List() ([]prepare.Record, error) {
	records, _, err := s.list()
	return records, err
}

// Unreadable returns the UIDs of the claims whose records were set aside, in ascending order.
func (s *Store) Unreadable() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the unreadable records: %w", err)
	}
	var uids []string
	for _, entry := range entries {
		if uid, _, is := strings.Cut(entry.Name(), suffix+aside); is {
			uids = append(uids, uid)
		}
	}
	return slices.Compact(uids), nil
}

// Held returns the devices that the records hold; admin access does not hold a device. all is false while a record
// cannot be read, because it may hold more.
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

// Count returns the number of claims with a record of the boot, in any state. A record that cannot be read counts,
// because its content is unknown.
func (s *Store) Count(bootID string) (int, error) {
	return s.count(func(r prepare.Record) bool { return r.BootID == bootID })
}

// CountOn returns the number of claims of the boot that hold a device of one of the GPUs (prepare.Record.Holds). A
// record that cannot be read counts.
func (s *Store) CountOn(bootID string, gpus []string) (int, error) {
	return s.count(func(r prepare.Record) bool { return r.BootID == bootID && r.Holds(gpus) })
}

// count returns the number of claims with a record for which chosen returns true or that cannot be read.
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

// list returns all readable records, ordered by UID, and whether all records are readable.
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

// contents are the relevant files of the folder.
type contents struct {
	// uids are the claims that have a record, in ascending order.
	uids []string
	// aside reports whether a damaged record was set aside.
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
