package disktest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// node identifies a file or folder, whatever its name. It is not the number of its inode, which the kernel uses again.
type node int

// entry is a change of one name in a folder: the name has the node from now on, or, for a removal, none. A rename also takes the node's former name away.
type entry struct {
	folder node
	name   string
	node   node
	// from is the former name; empty except for a rename.
	from string
}

// state is what is on the disk and what may be on it, at one moment.
type state struct {
	// folders are the entries that are on the disk, by folder and name; a file has none.
	folders map[node]map[string]node
	// pending are the changes of entries since the last sync of their folder, in order.
	pending []entry
	// contents are the contents that the file may have, the last one is what the program has written. A synced file has one.
	contents map[node][]string
}

// history is the sequence of states, one after each call; the first one is the start.
type history struct {
	root   node
	states []state
	// returned are the numbers of states when an operation returned.
	returned []int
	// nodes are the nodes of the inodes; last is the newest.
	nodes map[uint64]node
	last  node
}

// add returns a new node for the file or folder.
func (h *history) add(info fs.FileInfo) (node, error) {
	inode, err := inodeOf(info)
	if err != nil {
		return 0, err
	}
	h.last++
	h.nodes[inode] = h.last
	return h.last, nil
}

// find returns the node of the file or folder.
func (h *history) find(info fs.FileInfo) (node, error) {
	inode, err := inodeOf(info)
	if err != nil {
		return 0, err
	}
	n, known := h.nodes[inode]
	if !known {
		return 0, fmt.Errorf("%s was not made through the port", info.Name())
	}
	return n, nil
}

func inodeOf(info fs.FileInfo) (uint64, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s has no inode", info.Name())
	}
	return stat.Ino, nil
}

func (h *history) at(path string) (node, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return h.find(info)
}

// begin reads the folder, whose content counts as being on the disk.
func (h *history) begin(dir string) error {
	h.nodes = map[uint64]node{}
	first := state{folders: map[node]map[string]node{}, contents: map[node][]string{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		n, err := h.add(info)
		if err != nil {
			return err
		}
		if path == dir {
			h.root = n
		} else if parent, err := h.at(filepath.Dir(path)); err != nil {
			return err
		} else {
			first.folders[parent][filepath.Base(path)] = n
		}
		if d.IsDir() {
			first.folders[n] = map[string]node{}
			return nil
		}
		text, err := os.ReadFile(path)
		first.contents[n] = []string{string(text)}
		return err
	})
	h.states, h.returned = []state{first}, []int{1}
	return err
}

// next appends a copy of the last state and returns it.
func (h *history) next() *state {
	last := h.states[len(h.states)-1]
	copied := state{folders: maps.Clone(last.folders), pending: slices.Clone(last.pending), contents: maps.Clone(last.contents)}
	h.states = append(h.states, copied)
	return &h.states[len(h.states)-1]
}

// created records a new file or folder.
func (h *history) created(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	parent, err := h.at(filepath.Dir(path))
	if err != nil {
		return err
	}
	n, err := h.add(info)
	if err != nil {
		return err
	}
	s := h.next()
	s.pending = append(s.pending, entry{folder: parent, name: filepath.Base(path), node: n})
	if info.IsDir() {
		s.folders[n] = map[string]node{}
	} else {
		s.contents[n] = []string{""}
	}
	return nil
}

// opened records a file that existed and that the call may have truncated.
func (h *history) opened(path string) error {
	n, err := h.at(path)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	versions := h.states[len(h.states)-1].contents[n]
	if err != nil || versions[len(versions)-1] == string(text) {
		return err
	}
	s := h.next()
	s.contents[n] = append(slices.Clone(versions), string(text))
	return nil
}

func (h *history) renamed(from, to string) error {
	n, err := h.at(to)
	if err != nil {
		return err
	}
	parent, err := h.at(filepath.Dir(to))
	if err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("rename %s to %s: a rename between folders is not modeled", from, to)
	}
	s := h.next()
	s.pending = append(s.pending, entry{folder: parent, name: filepath.Base(to), node: n, from: filepath.Base(from)})
	return nil
}

func (h *history) removed(path string) error {
	parent, err := h.at(filepath.Dir(path))
	if err != nil {
		return err
	}
	s := h.next()
	s.pending = append(s.pending, entry{folder: parent, name: filepath.Base(path)})
	return nil
}

// written records the content of the file, also if it has no name any more.
func (h *history) written(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	n, err := h.find(info)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return err
	}
	s := h.next()
	s.contents[n] = append(slices.Clone(s.contents[n]), string(text))
	return nil
}

// synced records that the file's content, or the folder's entries, are on the disk.
func (h *history) synced(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	n, err := h.find(info)
	if err != nil {
		return err
	}
	s := h.next()
	if !info.IsDir() {
		versions := s.contents[n]
		s.contents[n] = versions[len(versions)-1:]
		return nil
	}
	entries := maps.Clone(s.folders[n])
	var rest []entry
	for _, e := range s.pending {
		if e.folder == n {
			e.apply(entries)
		} else {
			rest = append(rest, e)
		}
	}
	s.folders[n], s.pending = entries, rest
	return nil
}

// apply changes the entries of the folder.
func (e entry) apply(entries map[string]node) {
	if e.from != "" && entries[e.from] == e.node {
		delete(entries, e.from)
	}
	if e.node == 0 {
		delete(entries, e.name)
		return
	}
	entries[e.name] = e.node
}
