package hook

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// Limits far above those of real images; an image that exceeds them is an error.
const (
	maxConf      = 64 << 10
	maxConfFiles = 256
	maxConfDepth = 8
	// maxConfLines is the maximum number of folders and includes of all files together.
	maxConfLines = 512
	// maxEntries is the maximum number of entries of all folders together that one search lists.
	maxEntries = 1 << 17
)

// configured returns the folders that the root's ld.so.conf and the files that it includes list, in order.
func (r root) configured() ([]string, error) {
	reader := confReader{root: r}
	err := reader.read(confPath, 0)
	return reader.folders, err
}

// conf returns the folders listed in one file; none if the file is missing.
func (r root) conf(file string) ([]string, error) {
	text, err := r.read(file, maxConf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var folders []string
	for _, line := range ldso.ParseConf(string(text)) {
		if line.Folder != "" {
			folders = append(folders, line.Folder)
		}
	}
	return folders, err
}

// confReader collects the folders of a file and of the files that it includes.
type confReader struct {
	root
	folders []string
	files   int
	lines   int
	listed  int
}

// read adds a file's folders. A file that is missing or not a regular file adds none, as in ldconfig.
func (c *confReader) read(file string, depth int) error {
	if c.files++; c.files > maxConfFiles || depth > maxConfDepth {
		return fmt.Errorf("read %s: more than %d files, or %d deep in each other", confPath, maxConfFiles, maxConfDepth)
	}
	text, err := c.root.read(file, maxConf)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSpecial) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	for _, line := range ldso.ParseConf(string(text)) {
		if c.lines++; c.lines > maxConfLines {
			return fmt.Errorf("read %s: more than %d folders and includes", confPath, maxConfLines)
		}
		if line.Folder != "" {
			c.folders = append(c.folders, line.Folder)
			continue
		}
		if err := c.include(path.Dir(file), line.Include, depth); err != nil {
			return err
		}
	}
	return nil
}

// include reads the files that match a pattern, ordered by name. Only the last element may be a pattern; a relative
// pattern starts at the folder of the file that has it.
func (c *confReader) include(from, pattern string, depth int) error {
	if !path.IsAbs(pattern) {
		pattern = path.Join(from, pattern)
	}
	folder, ok := c.existing(path.Dir(pattern))
	if !ok {
		return nil
	}
	defer folder.Close()
	names, err := listNames(folder, &c.listed, func(name string) bool {
		ok, err := path.Match(path.Base(pattern), name)
		return err == nil && ok
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", path.Dir(pattern), err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := c.read(path.Join(path.Dir(pattern), name), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// listNames returns the names in the folder that keep accepts. listed counts all entries of the caller's folders; more than maxEntries are an error.
func listNames(folder *os.File, listed *int, keep func(name string) bool) ([]string, error) {
	const batch = 1024
	var kept []string
	for {
		names, err := folder.Readdirnames(batch)
		if *listed += len(names); *listed > maxEntries {
			return nil, fmt.Errorf("more than %d entries", maxEntries)
		}
		for _, name := range names {
			if keep(name) {
				kept = append(kept, name)
			}
		}
		if errors.Is(err, io.EOF) {
			return kept, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
