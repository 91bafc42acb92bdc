package driverroot

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/internal/host/bootid"
)

// Fingerprint identifies everything that Scan reads. Two equal fingerprints of the same roots mean that the Driver has
// not changed in between.
type Fingerprint string

// Fingerprint reads the driver's version, the boot, the identity and time of each library folder, and the numbers and
// owner of the nodes. A file that is replaced or added changes its folder's time. It takes a few dozen system calls and
// may be called for every claim. The error wraps ErrNotLoaded if no driver is loaded.
func (r Roots) Fingerprint() (Fingerprint, error) {
	version, err := r.version()
	if err != nil {
		return "", err
	}
	boot, err := bootid.Read(r.Proc)
	if err != nil {
		return "", err
	}
	root, err := r.driver()
	if err != nil {
		return "", err
	}
	var parts strings.Builder
	fmt.Fprintf(&parts, "%s %s %s", version, boot, root.host)
	for _, folder := range root.libraryFolders() {
		if resolved, err := root.resolve(folder); err == nil {
			stat := lstat(filepath.Join(root.seen, resolved))
			fmt.Fprintf(&parts, " %d:%d:%d", stat.Dev, stat.Ino, stat.Mtim.Nano())
		}
	}
	majors, err := r.majors()
	if err != nil {
		return "", err
	}
	for _, c := range control {
		for _, driver := range c.drivers {
			fmt.Fprintf(&parts, " %s=%d", driver, majors[driver])
		}
	}
	access, err := r.access()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&parts, " %s=%d %v", capabilities, majors[capabilities], access)
	return Fingerprint(parts.String()), nil
}

// lstat returns zeros for a missing file: its absence is part of a fingerprint.
func lstat(path string) unix.Stat_t {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}
	return stat
}
