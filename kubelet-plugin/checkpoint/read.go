package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// read returns the claim's record. A damaged record is set aside and reported (errDamaged); one of a newer agent stays
// and is reported once (newerError).
func (s *Store) read(uid string) (prepare.Record, error) {
	path := s.path(uid)
	file, err := os.Open(path)
	if err != nil {
		return prepare.Record{}, err
	}
	r, err := decodeFile(file, uid)
	var newer *newerError
	switch {
	case errors.Is(err, errDamaged):
		err = errors.Join(err, s.setAsideDamaged(file, uid, err))
	case errors.As(err, &newer):
		if _, known := s.reported.LoadOrStore(path, true); !known {
			s.report(path, err)
		}
	}
	return r, errors.Join(err, file.Close())
}

func decodeFile(file *os.File, uid string) (prepare.Record, error) {
	data, err := io.ReadAll(file)
	if err != nil {
		return prepare.Record{}, err
	}
	r, err := decode(data)
	if err == nil && r.UID != uid {
		return prepare.Record{}, fmt.Errorf("%w: it is the record of claim %s", errDamaged, r.UID)
	}
	return r, err
}

// setAsideDamaged renames the damaged file and reports it, unless another file has replaced it meanwhile.
func (s *Store) setAsideDamaged(file *os.File, uid string, why error) error {
	damaged, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(s.path(uid))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(damaged, there) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := s.damagedFiles(uid)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s%s%d", s.path(uid), aside, len(before)+1)
	// Not synced: after a power failure, a damaged record in its place is set aside again.
	err = disk.Or(s.files).Rename(s.path(uid), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		s.report(path, why)
	}
	return err
}

// salvage returns what is known of the claim from its damaged files. The content cannot be trusted: the caller verifies that the claim with this name
// has the UID. If the name cannot be recovered from the newest file, only the UID is set.
func salvage(paths []string, uid string) *prepare.UnreadableRecord {
	unreadable := &prepare.UnreadableRecord{Claim: prepare.Ref{UID: uid}}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		unreadable.Text += string(data)
		var file struct {
			Record struct {
				UID       string `json:"uid"`
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"record"`
		}
		unreadable.Claim = prepare.Ref{UID: uid}
		if json.Unmarshal(data, &file) == nil && file.Record.UID == uid {
			unreadable.Claim = prepare.Ref(file.Record)
		}
	}
	return unreadable
}

// damagedFiles returns the paths of the claim's damaged files.
func (s *Store) damagedFiles(uid string) ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), uid+suffix+aside) {
			paths = append(paths, filepath.Join(s.dir, entry.Name()))
		}
	}
	return paths, nil
}
