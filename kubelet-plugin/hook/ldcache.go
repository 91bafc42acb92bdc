package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

const (
	cachePath = "/etc/ld.so.cache"
	confPath  = "/etc/ld.so.conf"
	// The drop-ins precede those of an image in the order of names, and the compatibility libraries precede the
	// driver's.
	dropIns      = "/etc/ld.so.conf.d"
	compatDropIn = dropIns + "/00-tessera-compat.conf"
	driverDropIn = dropIns + "/00-tessera-driver.conf"
)

// updateLDCache writes the container's ld.so.cache as the container's own ldconfig would, with the driver's folders
// added, and a drop-in so that a later ldconfig run in the container finds the driver too. Folders that the image
// configures or its linker searches by default keep their place in the search order: the driver must not change which
// other libraries a program gets. For a root with musl, which has no cache, the search path is extended; for a root
// without a linker the files have no effect.
func updateLDCache(c container, o options) error {
	configured, err := c.configured()
	if err != nil {
		return err
	}
	known := slices.Concat(configured, c.defaults())
	added := c.missing(known, o.folders)
	if len(added) > 0 {
		switch err := c.write(driverDropIn, lines(added)); {
		case isUnwritable(err): // programs need the cache only
			c.warn("%v", err)
		case err != nil:
			return err
		}
	}
	if err := c.includeDropIns(); err != nil {
		return err
	}
	preferred, err := c.conf(compatDropIn)
	if err != nil {
		return err
	}
	entries, err := c.libraries(slices.Concat(preferred, added, known))
	if err != nil {
		return err
	}
	if err := c.write(cachePath, ldso.Encode(entries)); err != nil {
		return err
	}
	return c.updateMusl(o.folders)
}

// defaults returns the folders that the root's linker and its ldconfig search by default.
func (r root) defaults() []string {
	debian, err := r.lookup("/etc/debian_version")
	if err != nil {
		return ldso.DefaultFolders()
	}
	debian.Close()
	return ldso.MultiarchFolders()
}

// missing returns the folders that are not among the known ones, compared by identity.
func (r root) missing(known, folders []string) []string {
	seen := map[identity]bool{}
	for _, folder := range known {
		if id, err := r.identify(folder); err == nil {
			seen[id] = true
		}
	}
	var missing []string
	for _, folder := range folders {
		if slices.Contains(known, folder) || slices.Contains(missing, folder) {
			continue
		}
		if id, err := r.identify(folder); err == nil {
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		missing = append(missing, folder)
	}
	return missing
}

// includeDropIns writes the usual ld.so.conf if an image has none.
func (r root) includeDropIns() error {
	handle, err := r.lookup(confPath)
	if err == nil {
		return handle.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look up %s: %w", confPath, err)
	}
	return r.write(confPath, []byte("include "+dropIns+"/*.conf\n"))
}

// lines returns the content of a file with a line for each string.
func lines(text []string) []byte { return []byte(strings.Join(text, "\n") + "\n") }
