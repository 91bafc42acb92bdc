package ldso

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Limits far above those of any real library.
const (
	maxSections   = 4096
	maxSection    = 64 << 10
	sectionHeader = 64
)

// Section is a section of a library.
type Section struct {
	Data []byte
	// Align is the alignment of the section's content.
	Align uint64
}

// ReadSection returns a section of a 64-bit library, and whether the library has a section with that name. The error
// wraps ErrNotLibrary if the file is not a library or is invalid.
func ReadSection(file io.ReaderAt, name string) (Section, bool, error) {
	head := make([]byte, headSize)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Section{}, false, err
	}
	image := image{file: file, head: head[:n]}
	if _, err := image.identify(); err != nil {
		return Section{}, false, err
	}
	if !image.wide {
		return Section{}, false, wrong("32-bit")
	}
	return image.section(name)
}

func (i *image) section(name string) (Section, bool, error) {
	count := uint64(binary.LittleEndian.Uint16(i.head[60:]))
	namesIndex := uint64(binary.LittleEndian.Uint16(i.head[62:]))
	if count == 0 {
		return Section{}, false, nil
	}
	if count > maxSections || namesIndex >= count {
		return Section{}, false, wrong("%d sections", count)
	}
	table, err := i.at(binary.LittleEndian.Uint64(i.head[40:]), count*sectionHeader)
	if err != nil {
		return Section{}, false, err
	}
	if uint64(len(table)) < count*sectionHeader {
		return Section{}, false, wrong("the table of sections is cut off")
	}
	names, err := i.sectionData(table[namesIndex*sectionHeader:])
	if err != nil {
		return Section{}, false, err
	}
	for ; len(table) > 0; table = table[sectionHeader:] {
		at := uint64(binary.LittleEndian.Uint32(table))
		if at < uint64(len(names)) && bytes.HasPrefix(names[at:], []byte(name+"\x00")) {
			data, err := i.sectionData(table)
			return Section{Data: data, Align: binary.LittleEndian.Uint64(table[48:])}, err == nil, err
		}
	}
	return Section{}, false, nil
}

func (i *image) sectionData(header []byte) ([]byte, error) {
	size := binary.LittleEndian.Uint64(header[32:])
	if size > maxSection {
		return nil, wrong("a section of %d bytes", size)
	}
	return i.at(binary.LittleEndian.Uint64(header[24:]), size)
}
