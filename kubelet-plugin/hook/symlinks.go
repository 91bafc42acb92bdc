package hook

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// createSymlinks creates each link as "ln -sfn" would inside the root: a file or another link at its path is replaced, a
// folder is not. A path that is read-only, on a volume, or a mount itself is a warning, so that the other links are still
// created.
func createSymlinks(c container, o options) error {
	for _, link := range o.links {
		target, at, ok := strings.Cut(link, "::")
		if !ok || target == "" || at == "" {
			return fmt.Errorf("link %q: must be TARGET::PATH", link)
		}
		switch err := c.link(target, at); {
		case isUnwritable(err):
			c.warn("link %s to %s: %v", at, target, err)
		case err != nil:
			return fmt.Errorf("link %s to %s: %w", at, target, err)
		}
	}
	return nil
}

// link creates one symbolic link. The target is never followed.
func (r root) link(target, at string) error {
	at = path.Join("/", at)
	if at == "/" {
		return unix.EEXIST
	}
	folder, err := r.makeFolder(path.Dir(at))
	if err != nil {
		return err
	}
	defer folder.Close()
	name := path.Base(at)
	text := make([]byte, len(target)+1)
	n, err := unix.Readlinkat(int(folder.Fd()), name, text)
	if err == nil && string(text[:n]) == target {
		return nil
	}
	return replace(folder, name, func(temporary string) error {
		return unix.Symlinkat(target, int(folder.Fd()), temporary)
	})
}
