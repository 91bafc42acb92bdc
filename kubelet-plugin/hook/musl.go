package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// The machines whose musl linker is supported, and the folders that it searches without a path file
// (/etc/ld-musl-<machine>.path).
var (
	muslMachines = []string{"x86_64", "aarch64"}
	muslDefaults = []string{"/lib", "/usr/local/lib", "/usr/lib"}
)

// updateMusl adds the folders to the search path of a root's musl linker, if it has one.
func (r root) updateMusl(folders []string) error {
	for _, machine := range muslMachines {
		linker, err := r.lookup("/lib/ld-musl-" + machine + ".so.1")
		if err != nil {
			continue
		}
		linker.Close()
		file := "/etc/ld-musl-" + machine + ".path"
		search := muslDefaults
		text, err := r.read(file, maxConf)
		switch {
		case err == nil:
			search = strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' || r == ':' })
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("read %s: %w", file, err)
		}
		added := slices.DeleteFunc(slices.Clone(folders), func(f string) bool { return slices.Contains(search, f) })
		if len(added) == 0 {
			continue
		}
		if err := r.write(file, lines(slices.Concat(search, added))); err != nil {
			return err
		}
	}
	return nil
}
