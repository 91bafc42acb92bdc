package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// glance remembers what the records own, by file. A record never changes what it owns without becoming
// another file, so that a file which is still the same needs no second reading.
type glance struct {
	mutex sync.Mutex
	files map[string]glimpse
}

type glimpse struct {
	info   fs.FileInfo
	record prepare.Record
}

// Owned reports whether a record holds memory slices of the placement on the GPU: what lies there is
// ours, or under a live claim. The inventory withholds the slices of instances for which it is false,
// and calls it for each instance of each reading. While there is a record that cannot be read,
// everything counts as owned, because a slice that a claim holds must never be withheld.
func (s *Store) Owned(gpuName string, p gpu.Placement) bool {
	found, err := s.survey()
	if err != nil {
		return true
	}
	s.seen.mutex.Lock()
	defer s.seen.mutex.Unlock()
	fresh := make(map[string]glimpse, len(found.uids))
	owned := found.aside
	for _, uid := range found.uids {
		now, err := s.glimpse(uid)
		switch {
		case err == nil:
			fresh[uid] = now
			owned = owned || now.record.Holds(gpuName, p)
		case !errors.Is(err, fs.ErrNotExist):
			owned = true
		}
	}
	s.seen.files = fresh
	return owned
}

// glimpse returns the claim's record as it was read last if its file is still the same.
func (s *Store) glimpse(uid string) (glimpse, error) {
	info, err := os.Stat(s.path(uid))
	if err != nil {
		return glimpse{}, err
	}
	last, known := s.seen.files[uid]
	if known && os.SameFile(last.info, info) && last.info.ModTime().Equal(info.ModTime()) && last.info.Size() == info.Size() {
		return last, nil
	}
	r, err := s.read(uid)
	return glimpse{info: info, record: r}, err
}
