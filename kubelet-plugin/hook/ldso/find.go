package ldso

import (
	"bytes"
	"encoding/binary"
)

// Find returns the paths that a cache has for the name and the ABI, in the order of the cache, without those for particular processors (Entry.Hwcap).
// A cache of a glibc before 2.32 has the old format in front, which is skipped. Whatever is invalid is not found.
func Find(cache []byte, name string, abi ABI) []string {
	at := bytes.Index(cache, []byte(magic))
	if at < 0 || len(cache)-at < headerSize {
		return nil
	}
	cache = cache[at:] // offsets count from here
	count := min(uint64(binary.LittleEndian.Uint32(cache[len(magic):])), uint64(len(cache)-headerSize)/entrySize)
	var paths []string
	for entry := range count {
		e := cache[headerSize+entry*entrySize:]
		if ABI(binary.LittleEndian.Uint32(e)) != abi || binary.LittleEndian.Uint64(e[16:]) != 0 || text(cache, e[4:]) != name {
			continue
		}
		if path := text(cache, e[8:]); path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// maxText bounds a name or a path, so that a cache without ends of texts costs no more than its size times this.
const maxText = 4096

// text returns the text whose offset in the cache is at the start of entry; empty if there is none.
func text(cache, entry []byte) string {
	offset := uint64(binary.LittleEndian.Uint32(entry))
	if offset >= uint64(len(cache)) {
		return ""
	}
	rest := cache[offset:min(offset+maxText, uint64(len(cache)))]
	if end := bytes.IndexByte(rest, 0); end >= 0 {
		return string(rest[:end])
	}
	return ""
}
