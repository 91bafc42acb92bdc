package ldso

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Entry is one entry of the cache: the linker resolves Name to Path.
type Entry struct {
	// Name is the name under which programs load the library, Path its absolute path.
	Name string
	Path string
	ABI  ABI
	// Hwcap is the subdirectory of glibc-hwcaps that has the library, such as x86-64-v3; empty for a library without
	// special requirements.
	Hwcap string
}

// The new format of the cache, read by every glibc since 2.2 and the only one written since 2.32.
const (
	magic           = "glibc-ld.so.cache1.1"
	headerSize      = 48
	entrySize       = 24
	littleEndian    = 2
	extensionMagic  = 0xeaa42174
	extensionSize   = 8 + sectionSize
	sectionSize     = 16
	sectionOfHwcaps = 1
	// hwcapExtension marks an entry whose hwcap is an index into the section of hwcaps.
	hwcapExtension = 1 << 62
)

// Encode returns a cache of the entries. Of entries that differ only in the path, the linker takes the first.
func Encode(entries []Entry) []byte {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, order)
	hwcaps := hwcapsOf(entries)

	var strings stringTable
	strings.start = headerSize + entrySize*len(entries)
	table := make([]byte, 0, entrySize*len(entries))
	for _, e := range entries {
		table = binary.LittleEndian.AppendUint32(table, uint32(e.ABI))
		table = binary.LittleEndian.AppendUint32(table, strings.offset(e.Name))
		table = binary.LittleEndian.AppendUint32(table, strings.offset(e.Path))
		table = binary.LittleEndian.AppendUint32(table, 0)
		table = binary.LittleEndian.AppendUint64(table, hwcapValue(hwcaps, e.Hwcap))
	}
	var section []byte
	for _, hwcap := range hwcaps {
		section = binary.LittleEndian.AppendUint32(section, strings.offset(hwcap))
	}
	extension := 0
	if len(hwcaps) > 0 {
		strings.pad(4)
		extension = strings.end()
	}

	cache := make([]byte, 0, strings.end()+extensionSize+len(section))
	cache = append(cache, magic...)
	cache = binary.LittleEndian.AppendUint32(cache, uint32(len(entries)))
	cache = binary.LittleEndian.AppendUint32(cache, uint32(len(strings.text)))
	cache = append(cache, littleEndian, 0, 0, 0)
	cache = binary.LittleEndian.AppendUint32(cache, uint32(extension))
	cache = append(cache, make([]byte, headerSize-len(cache))...)
	cache = append(cache, table...)
	cache = append(cache, strings.text...)
	if extension == 0 {
		return cache
	}
	for _, word := range []uint32{
		extensionMagic, 1,
		sectionOfHwcaps, 0, uint32(extension + extensionSize), uint32(len(section)),
	} {
		cache = binary.LittleEndian.AppendUint32(cache, word)
	}
	return append(cache, section...)
}

// order compares entries as the linker's binary search requires: names in descending order, and entries with one name
// with the optimized ones first, ordered by hwcap.
func order(a, b Entry) int {
	plain := func(e Entry) int {
		if e.Hwcap == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(
		CompareNames(b.Name, a.Name),
		cmp.Compare(b.ABI, a.ABI),
		cmp.Compare(plain(a), plain(b)),
		cmp.Compare(a.Hwcap, b.Hwcap),
	)
}

// hwcapsOf returns the distinct hwcaps of the entries, ordered by name: the linker merges them with its own list in one
// pass.
func hwcapsOf(entries []Entry) []string {
	var hwcaps []string
	for _, e := range entries {
		if e.Hwcap != "" {
			hwcaps = append(hwcaps, e.Hwcap)
		}
	}
	slices.Sort(hwcaps)
	return slices.Compact(hwcaps)
}

func hwcapValue(hwcaps []string, hwcap string) uint64 {
	index, found := slices.BinarySearch(hwcaps, hwcap)
	if !found {
		return 0
	}
	return hwcapExtension | uint64(index)
}

// stringTable has the strings of the cache, each once. Offsets count from the start of the file.
type stringTable struct {
	start   int
	text    []byte
	offsets map[string]uint32
}

func (t *stringTable) end() int { return t.start + len(t.text) }

func (t *stringTable) offset(s string) uint32 {
	if at, ok := t.offsets[s]; ok {
		return at
	}
	if t.offsets == nil {
		t.offsets = map[string]uint32{}
	}
	at := uint32(t.end())
	t.offsets[s] = at
	t.text = append(append(t.text, s...), 0)
	return at
}

func (t *stringTable) pad(to int) {
	for t.end()%to != 0 {
		t.text = append(t.text, 0)
	}
}

// CompareNames orders library names as the linker does: character by character, but runs of digits by their value, so
// that libx.so.10 follows libx.so.9. As in the linker, the value is a 32-bit integer that overflows silently.
func CompareNames(a, b string) int {
	for a != "" {
		aDigit, bDigit := digit(a), digit(b)
		switch {
		case aDigit && bDigit:
			var x, y int32
			x, a = number(a)
			y, b = number(b)
			if x != y {
				return int(x - y)
			}
		case aDigit:
			return 1
		case bDigit:
			return -1
		case b == "":
			return 1
		case a[0] != b[0]:
			return int(a[0]) - int(b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	if b == "" {
		return 0
	}
	return -1
}

func digit(s string) bool { return s != "" && '0' <= s[0] && s[0] <= '9' }

// number returns the value of the digits at the start of s, and the rest of s.
func number(s string) (int32, string) {
	var value int32
	for digit(s) {
		value = value*10 + int32(s[0]-'0')
		s = s[1:]
	}
	return value, s
}
