package hook

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// compatLibrary returns a 64-bit library with a note section that lists driver branches: a header, a dynamic segment,
// and three sections. Without text there is no such section.
func compatLibrary(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	pad := func(to int) { b.Write(make([]byte, to-b.Len())) }
	const dynamicAt, namesAt, noteAt, sectionsAt = 0x100, 0x180, 0x200, 0x400
	names := "\x00.shstrtab\x00" + compatSection + "\x00"
	ident := [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1}
	put(elf.Header64{
		Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Phoff: 64, Phentsize: 56, Phnum: 1,
		Shoff: sectionsAt, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	})
	put(elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Off: dynamicAt, Filesz: 16})
	pad(dynamicAt)
	put(elf.Dyn64{})
	pad(namesAt)
	b.WriteString(names)
	pad(noteAt)
	owner := compatOwner + "\x00"
	put(uint32(len(owner)), uint32(len(text)), uint32(1))
	b.WriteString(owner)
	pad(noteAt + 12 + (len(owner)+3)/4*4)
	b.WriteString(text)
	size := uint64(b.Len() - noteAt)
	pad(sectionsAt)
	put(elf.Section64{}, elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))})
	note := elf.Section64{Type: uint32(elf.SHT_NOTE), Off: noteAt, Size: size, Addralign: 4}
	if text != "" {
		note.Name = uint32(strings.Index(names, compatSection))
	}
	put(note)
	return b.Bytes()
}

func TestEnableCUDACompat(t *testing.T) {
	const note = `{"Format":1,"CUDA Version":"13.0","Driver":[535,570,580],"Device":[1]}`
	tests := map[string]struct {
		libraries map[string]string
		driver    string
		enabled   bool
		warning   string
	}{
		"no compat libraries":          {nil, "580.65.06", false, ""},
		"newer, made for the driver":   {map[string]string{"libcuda.so.590.10.01": note}, "580.65.06", true, ""},
		"newer of the same branch":     {map[string]string{"libcuda.so.580.95.05": note}, "580.65.06", true, ""},
		"older":                        {map[string]string{"libcuda.so.570.10.01": note}, "580.65.06", false, ""},
		"the same":                     {map[string]string{"libcuda.so.580.65.06": note}, "580.65.06", false, ""},
		"newer, not for the driver":    {map[string]string{"libcuda.so.590.10.01": note}, "550.54.15", false, ""},
		"without a note, newer branch": {map[string]string{"libcuda.so.590.10.01": ""}, "580.65.06", true, ""},
		"without a note, same branch":  {map[string]string{"libcuda.so.580.95.05": ""}, "580.65.06", false, ""},
		"two":                          {map[string]string{"libcuda.so.590.1.1": "", "libcuda.so.591.1.1": ""}, "580.65.06", false, "several"},
		"a broken note":                {map[string]string{"libcuda.so.590.10.01": "{"}, "580.65.06", false, "JSON"},
		"no version":                   {map[string]string{"libcuda.so.new.est": ""}, "580.65.06", false, "no driver version"},
		"no driver version":            {map[string]string{"libcuda.so.590.10.01": note}, "", false, "no driver version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.write(compatDropIn, "/left/by/an/earlier/run\n")
			for library, text := range test.libraries {
				b.write("/usr/local/cuda-13.0/compat/"+library, string(compatLibrary(t, text)))
				b.write("/usr/local/cuda-13.0/compat/libnvidia-ptxjitcompiler.so.590.10.01", "another library")
			}
			b.link("/etc/alternatives/cuda", "/usr/local/cuda")
			b.link("/usr/local/cuda-13.0", "/etc/alternatives/cuda")
			log, err := b.try(EnableCUDACompat, "--host-driver-version", test.driver)
			if err != nil {
				t.Fatal(err)
			}
			if (log == "") != (test.warning == "") || !strings.Contains(log, test.warning) {
				t.Errorf("logged %q, want %q", log, test.warning)
			}
			_, err = os.Lstat(filepath.Join(b.root, compatDropIn))
			if got := err == nil; got != test.enabled {
				t.Errorf("drop-in: got %v, want %v", got, test.enabled)
			}
			if test.enabled && b.read(compatDropIn) != compatFolder+"\n" {
				t.Errorf("drop-in: got %q", b.read(compatDropIn))
			}
		})
	}
}

// A folder with the name of a library is none.
func TestCompatLibraryCannotBeRead(t *testing.T) {
	b := newBundle(t)
	b.folder(compatFolder + "/libcuda.so.590.10.01")
	log, err := b.try(EnableCUDACompat, "--host-driver-version=580.65.06")
	if err == nil && !strings.Contains(log, "not a regular file") || err != nil && !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v, logged %q", err, log)
	}
}

// The compatibility libraries precede the driver's, also if an image includes no drop-ins.
func TestCompatComesFirst(t *testing.T) {
	needRoot(t, "runs a program in another root")
	for name, conf := range map[string]string{"drop-ins": "include /etc/ld.so.conf.d/*.conf\n", "no drop-ins": "/usr/local/lib\n"} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.glibc()
			b.write("/etc/ld.so.conf", conf)
			b.library(driverFolder+"/libcuda.so.1", "libcuda.so.1", "driver")
			b.library(compatFolder+"/libcuda.so.590.10.01", "libcuda.so.1", "compat")
			b.run(EnableCUDACompat, "--host-driver-version=580.65.06")
			b.run(UpdateLDCache, "--folder", driverFolder)
			if got := b.lookUp("libcuda.so.1"); !strings.HasPrefix(got, "compat from") {
				t.Errorf("open libcuda.so.1: got %q, want the compatibility library", got)
			}
		})
	}
}

func TestParseNoteRefusesNonsense(t *testing.T) {
	good := compatLibrary(t, `{"Driver":[580]}`)
	section, ok, err := ldso.ReadSection(bytes.NewReader(good), compatSection)
	if err != nil || !ok {
		t.Fatalf("ReadSection: %v, %v", ok, err)
	}
	if branches, err := parseNote(section); err != nil || len(branches) != 1 || branches[0] != 580 {
		t.Fatalf("parseNote: got %v, %v", branches, err)
	}
	huge := bytes.Clone(section.Data)
	binary.LittleEndian.PutUint32(huge, 0xffffffff)
	foreign := bytes.Clone(section.Data)
	foreign[12] = 'X'
	for name, note := range map[string]ldso.Section{
		"empty":     {},
		"cut off":   {Data: section.Data[:20], Align: 4},
		"huge":      {Data: huge, Align: 4},
		"foreign":   {Data: foreign, Align: 4},
		"alignment": {Data: section.Data, Align: 1 << 40},
	} {
		if _, err := parseNote(note); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}
