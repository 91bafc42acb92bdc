package ldso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ABI is the kind of programs that can use a library, as a value of the cache.
type ABI uint32

// The ABIs of the machines that Tessera runs on.
const (
	I386    ABI = 0x0003
	X8664   ABI = 0x0303
	X32     ABI = 0x0803
	AArch64 ABI = 0x0a03
)

// Library is the linker's data of a shared library.
type Library struct {
	// Name is the soname; empty if the library has none.
	Name string
	ABI  ABI
}

// ErrNotLibrary means that a file is not a shared library of a supported machine.
var ErrNotLibrary = errors.New("not a shared library")

// Limits far above those of any real library.
const (
	headSize     = 1024
	maxSegments  = 256
	maxDynamic   = 64 << 10
	maxName      = 255
	segmentSize  = 56
	segmentSize3 = 32
)

// ReadLibrary reads the soname and the ABI of a library. The error wraps ErrNotLibrary if the file is not a library or
// is invalid.
func ReadLibrary(file io.ReaderAt) (Library, error) {
	head := make([]byte, headSize)
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Library{}, err
	}
	image := image{file: file, head: head[:n]}
	library, err := image.identify()
	if err != nil {
		return Library{}, err
	}
	library.Name, err = image.soname()
	return library, err
}

// image is a file that may be a shared library. Both supported machines are little endian.
type image struct {
	file io.ReaderAt
	// head is the start of the file; it nearly always includes the table of segments.
	head []byte
	wide bool
	// loads are the segments that are mapped from the file; dynamic is the segment for the linker.
	loads   []segment
	dynamic segment
}

type segment struct{ offset, address, size uint64 }

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotLibrary, fmt.Sprintf(format, args...))
}

// at returns size bytes of the file, or fewer at its end.
func (i *image) at(offset, size uint64) ([]byte, error) {
	if end := offset + size; end >= offset && end <= uint64(len(i.head)) {
		return i.head[offset:end], nil
	}
	if offset > 1<<62 {
		return nil, wrong("offset %#x", offset)
	}
	data := make([]byte, size)
	n, err := i.file.ReadAt(data, int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data[:n], nil
}

// identify reads the header and the segments.
func (i *image) identify() (Library, error) {
	h := i.head
	if len(h) < 64 || !bytes.HasPrefix(h, []byte(elf.ELFMAG)) || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return Library{}, wrong("no ELF header")
	}
	if kind := elf.Type(binary.LittleEndian.Uint16(h[16:])); kind != elf.ET_DYN {
		return Library{}, wrong("of type %v", kind)
	}
	target := target{elf.Class(h[elf.EI_CLASS]), elf.Machine(binary.LittleEndian.Uint16(h[18:]))}
	abi, known := abis[target]
	if !known {
		return Library{}, wrong("of machine %v, %v", target.machine, target.class)
	}
	i.wide = target.class == elf.ELFCLASS64
	return Library{ABI: abi}, i.readSegments()
}

// target is the class and the machine for which a file is compiled.
type target struct {
	class   elf.Class
	machine elf.Machine
}

var abis = map[target]ABI{
	{elf.ELFCLASS64, elf.EM_X86_64}:  X8664,
	{elf.ELFCLASS64, elf.EM_AARCH64}: AArch64,
	{elf.ELFCLASS32, elf.EM_X86_64}:  X32,
	{elf.ELFCLASS32, elf.EM_386}:     I386,
}

func (i *image) readSegments() error {
	offset, size, count := uint64(binary.LittleEndian.Uint32(i.head[28:])), uint64(segmentSize3), i.head[44:]
	if i.wide {
		offset, size, count = binary.LittleEndian.Uint64(i.head[32:]), segmentSize, i.head[56:]
	}
	segments := uint64(binary.LittleEndian.Uint16(count))
	if segments > maxSegments {
		return wrong("%d segments", segments)
	}
	table, err := i.at(offset, segments*size)
	if err != nil {
		return err
	}
	if uint64(len(table)) < segments*size {
		return wrong("the table of segments is cut off")
	}
	for ; len(table) > 0; table = table[size:] {
		switch binary.LittleEndian.Uint32(table) {
		case uint32(elf.PT_LOAD):
			i.loads = append(i.loads, i.segment(table))
		case uint32(elf.PT_DYNAMIC):
			i.dynamic = i.segment(table)
		}
	}
	if i.dynamic.size == 0 || i.dynamic.size > maxDynamic {
		return wrong("a dynamic segment of %d bytes", i.dynamic.size)
	}
	return nil
}

func (i *image) segment(header []byte) segment {
	if i.wide {
		return segment{
			offset:  binary.LittleEndian.Uint64(header[8:]),
			address: binary.LittleEndian.Uint64(header[16:]),
			size:    binary.LittleEndian.Uint64(header[32:]),
		}
	}
	return segment{
		offset:  uint64(binary.LittleEndian.Uint32(header[4:])),
		address: uint64(binary.LittleEndian.Uint32(header[8:])),
		size:    uint64(binary.LittleEndian.Uint32(header[16:])),
	}
}

// soname returns the library's name; empty if it has none.
func (i *image) soname() (string, error) {
	dynamic, err := i.at(i.dynamic.offset, i.dynamic.size)
	if err != nil {
		return "", err
	}
	name, named, table := i.dynamicValues(dynamic)
	if !named {
		return "", nil
	}
	for _, load := range i.loads {
		if table < load.address || table-load.address >= load.size {
			continue
		}
		text, err := i.at(load.offset+table-load.address+name, maxName+1)
		if err != nil {
			return "", err
		}
		soname, _, ended := strings.Cut(string(text), "\x00")
		if !ended || !Plain(soname) {
			return "", wrong("its name is invalid")
		}
		return soname, nil
	}
	return "", wrong("its names are outside the file")
}

// dynamicValues returns the offset of the soname in the string table, whether there is a soname, and the table's
// address.
func (i *image) dynamicValues(dynamic []byte) (name uint64, named bool, table uint64) {
	word := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(dynamic[at:])) }
	size := 4
	if i.wide {
		word = func(at int) uint64 { return binary.LittleEndian.Uint64(dynamic[at:]) }
		size = 8
	}
	for ; len(dynamic) >= 2*size; dynamic = dynamic[2*size:] {
		switch word(0) {
		case uint64(elf.DT_NULL):
			return name, named, table
		case uint64(elf.DT_SONAME):
			name, named = word(size), true
		case uint64(elf.DT_STRTAB):
			table = word(size)
		}
	}
	return name, named, table
}

// Plain reports whether a name can be the name of a library in the cache: printable ASCII without a slash, not longer
// than a file name.
func Plain(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}
