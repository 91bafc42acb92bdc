package ldso

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Every library of this machine has the name that the standard library reads from it.
func TestReadLibraryAgreesWithDebugELF(t *testing.T) {
	compared := 0
	for _, folder := range slices.Concat(DefaultFolders(), MultiarchFolders()) {
		paths, err := filepath.Glob(filepath.Join(folder, "lib*.so*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths[:min(len(paths), 100)] {
			want, ok := sonameByDebugELF(path)
			if !ok {
				continue
			}
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReadLibrary(file)
			file.Close()
			if err != nil || got.Name != want {
				t.Errorf("%s: got %q, %v, want %q", path, got.Name, err, want)
			}
			compared++
		}
	}
	if compared == 0 {
		t.Skip("needs a machine with shared libraries to compare with")
	}
}

func sonameByDebugELF(path string) (string, bool) {
	file, err := elf.Open(path)
	if err != nil || file.Type != elf.ET_DYN {
		return "", false
	}
	defer file.Close()
	names, err := file.DynString(elf.DT_SONAME)
	if err != nil {
		return "", false
	}
	if len(names) == 0 {
		return "", true
	}
	return names[0], true
}

// library returns a minimal shared library with the soname: a header, two segments, the dynamic
// segment and the names.
func library(class elf.Class, machine elf.Machine, soname string) []byte {
	wide := class == elf.ELFCLASS64
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	const dynamicAt, namesAt, size = 0x100, 0x200, 0x300
	ident := [16]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), 1}
	if wide {
		put(elf.Header64{Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(machine), Phoff: 64, Phentsize: 56, Phnum: 2})
		put(elf.Prog64{Type: uint32(elf.PT_LOAD), Vaddr: 0x1000, Filesz: size})
		put(elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Off: dynamicAt, Vaddr: 0x1000 + dynamicAt, Filesz: 48})
		b.Write(make([]byte, dynamicAt-b.Len()))
		put(elf.Dyn64{Tag: int64(elf.DT_SONAME), Val: 1}, elf.Dyn64{Tag: int64(elf.DT_STRTAB), Val: 0x1000 + namesAt}, elf.Dyn64{})
	} else {
		put(elf.Header32{Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(machine), Phoff: 52, Phentsize: 32, Phnum: 2})
		put(elf.Prog32{Type: uint32(elf.PT_LOAD), Vaddr: 0x1000, Filesz: size})
		put(elf.Prog32{Type: uint32(elf.PT_DYNAMIC), Off: dynamicAt, Vaddr: 0x1000 + dynamicAt, Filesz: 24})
		b.Write(make([]byte, dynamicAt-b.Len()))
		put(elf.Dyn32{Tag: int32(elf.DT_SONAME), Val: 1}, elf.Dyn32{Tag: int32(elf.DT_STRTAB), Val: 0x1000 + namesAt}, elf.Dyn32{})
	}
	b.Write(make([]byte, namesAt-b.Len()+1))
	b.WriteString(soname + "\x00")
	return b.Bytes()
}

func TestReadLibrary(t *testing.T) {
	tests := map[string]struct {
		file []byte
		want Library
		err  error
	}{
		"x86-64":              {library(elf.ELFCLASS64, elf.EM_X86_64, "liba.so.1"), Library{"liba.so.1", X8664}, nil},
		"aarch64":             {library(elf.ELFCLASS64, elf.EM_AARCH64, "liba.so.1"), Library{"liba.so.1", AArch64}, nil},
		"i386":                {library(elf.ELFCLASS32, elf.EM_386, "liba.so.1"), Library{"liba.so.1", I386}, nil},
		"x32":                 {library(elf.ELFCLASS32, elf.EM_X86_64, "liba.so.1"), Library{"liba.so.1", X32}, nil},
		"another machine":     {library(elf.ELFCLASS64, elf.EM_RISCV, "liba.so.1"), Library{}, ErrNotLibrary},
		"a path for a name":   {library(elf.ELFCLASS64, elf.EM_X86_64, "../../a.so"), Library{}, ErrNotLibrary},
		"a name of two":       {library(elf.ELFCLASS64, elf.EM_X86_64, "liba\n.so"), Library{}, ErrNotLibrary},
		"text":                {[]byte("INPUT(-lncurses)\n"), Library{}, ErrNotLibrary},
		"empty":               {nil, Library{}, ErrNotLibrary},
		"cut off":             {library(elf.ELFCLASS64, elf.EM_X86_64, "liba.so.1")[:100], Library{}, ErrNotLibrary},
		"the name is cut off": {library(elf.ELFCLASS64, elf.EM_X86_64, "liba.so.1")[:0x205], Library{}, ErrNotLibrary},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ReadLibrary(bytes.NewReader(test.file))
			if !errors.Is(err, test.err) {
				t.Fatalf("ReadLibrary: got error %v, want %v", err, test.err)
			}
			if err == nil && got != test.want {
				t.Errorf("ReadLibrary: got %v, want %v", got, test.want)
			}
		})
	}
}

// A library may have any content: the result is a plain name or an error.
func FuzzReadLibrary(f *testing.F) {
	f.Add(library(elf.ELFCLASS64, elf.EM_X86_64, "liba.so.1"))
	f.Add(library(elf.ELFCLASS32, elf.EM_386, "liba.so.1"))
	if self, err := os.ReadFile("/lib64/ld-linux-x86-64.so.2"); err == nil {
		f.Add(self)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		library, err := ReadLibrary(bytes.NewReader(file))
		if err == nil && library.Name != "" && !Plain(library.Name) {
			t.Errorf("ReadLibrary: got the name %q", library.Name)
		}
		section, found, err := ReadSection(bytes.NewReader(file), ".shstrtab")
		if len(section.Data) > len(file) || found && err != nil {
			t.Errorf("ReadSection: got %d bytes of %d, %v", len(section.Data), len(file), err)
		}
	})
}
