package ldso

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCompareNames(t *testing.T) {
	ascending := []string{
		"lib.so",
		"liba.so",
		"liba.so.9",
		"liba.so.09.1",
		"liba.so.10",
		"liba.so.2147483647",
		"libb",
		"libb.so",
		"libb1.so",
		"libc.so",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := sign(CompareNames(a, b)); got != sign(i-j) {
				t.Errorf("CompareNames(%q, %q): got %d, want %d", a, b, got, sign(i-j))
			}
		}
	}
	// 4294967297 overflows to 1, as it does in the linker.
	if CompareNames("liba.so.4294967297", "liba.so.1") != 0 {
		t.Error("numbers must overflow as 32-bit integers")
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// The bytes of a cache with one library, written by hand from glibc's dl-cache.h.
func TestEncodeBytes(t *testing.T) {
	got := Encode([]Entry{{Name: "liba.so.1", Path: "/lib/liba.so.1", ABI: X8664}})
	want := "glibc-ld.so.cache1.1" +
		"\x01\x00\x00\x00" + "\x19\x00\x00\x00" + "\x02\x00\x00\x00" + strings.Repeat("\x00", 16) +
		"\x03\x03\x00\x00" + "\x48\x00\x00\x00" + "\x52\x00\x00\x00" + "\x00\x00\x00\x00" + strings.Repeat("\x00", 8) +
		"liba.so.1\x00/lib/liba.so.1\x00"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Encode (-want +got):\n%s", diff)
	}
}

// glibc's own ldconfig reads the cache.
func TestLdconfigReadsIt(t *testing.T) {
	entries := []Entry{
		{Name: "libcuda.so.1", Path: "/usr/lib64/libcuda.so.1", ABI: X8664},
		{Name: "libz.so.1", Path: "/lib/libz.so.1", ABI: X8664},
		{Name: "libz.so.1", Path: "/usr/local/lib/libz.so.1", ABI: X8664},
		{Name: "libz.so.1", Path: "/lib32/libz.so.1", ABI: I386},
		{Name: "libz.so.1", Path: "/libx32/libz.so.1", ABI: X32},
		{Name: "libz.so.1", Path: "/lib/aarch64-linux-gnu/libz.so.1", ABI: AArch64},
		{Name: "libz.so.1", Path: "/lib/glibc-hwcaps/x86-64-v2/libz.so.1.3", ABI: X8664, Hwcap: "x86-64-v2"},
		{Name: "libz.so.1", Path: "/lib/glibc-hwcaps/x86-64-v3/libz.so.1.3", ABI: X8664, Hwcap: "x86-64-v3"},
		{Name: "libz.so.10", Path: "/lib/libz.so.10", ABI: X8664},
		{Name: "libz.so.9", Path: "/lib/libz.so.9", ABI: X8664},
	}
	want := []string{
		`libz.so.10 (libc6,x86-64) => /lib/libz.so.10`,
		`libz.so.9 (libc6,x86-64) => /lib/libz.so.9`,
		`libz.so.1 (libc6,AArch64) => /lib/aarch64-linux-gnu/libz.so.1`,
		`libz.so.1 (libc6,x32) => /libx32/libz.so.1`,
		`libz.so.1 (libc6,x86-64, hwcap: "x86-64-v2") => /lib/glibc-hwcaps/x86-64-v2/libz.so.1.3`,
		`libz.so.1 (libc6,x86-64, hwcap: "x86-64-v3") => /lib/glibc-hwcaps/x86-64-v3/libz.so.1.3`,
		`libz.so.1 (libc6,x86-64) => /lib/libz.so.1`,
		`libz.so.1 (libc6,x86-64) => /usr/local/lib/libz.so.1`,
		`libz.so.1 (libc6) => /lib32/libz.so.1`,
		`libcuda.so.1 (libc6,x86-64) => /usr/lib64/libcuda.so.1`,
	}
	if diff := cmp.Diff(want, ldconfigPrints(t, entries)); diff != "" {
		t.Errorf("ldconfig -p (-want +got):\n%s", diff)
	}
}

// For any entries, ldconfig accepts the cache and lists all of them.
func TestLdconfigReadsAnyCache(t *testing.T) {
	name := rapid.StringMatching(`lib[a-z0-9.+_-]{0,12}\.so(\.[0-9]{1,12}){0,3}`)
	entry := rapid.Custom(func(t *rapid.T) Entry {
		name := name.Draw(t, "name")
		return Entry{
			Name:  name,
			Path:  filepath.Join("/", rapid.StringMatching(`[a-z0-9/]{1,20}`).Draw(t, "folder"), name),
			ABI:   rapid.SampledFrom([]ABI{I386, X8664, X32, AArch64}).Draw(t, "abi"),
			Hwcap: rapid.SampledFrom([]string{"", "", "x86-64-v2", "x86-64-v3", "x86-64-v4"}).Draw(t, "hwcap"),
		}
	})
	for i := range 20 {
		entries := rapid.SliceOfN(entry, 0, 200).Example(i)
		if got := ldconfigPrints(t, entries); len(got) != len(entries) {
			t.Fatalf("ldconfig -p lists %d libraries of %d", len(got), len(entries))
		}
	}
}

// ldconfigPrints returns ldconfig's listing of a cache with the entries, a line per library.
func ldconfigPrints(t *testing.T, entries []Entry) []string {
	t.Helper()
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig"
	}
	if _, err := os.Stat(ldconfig); err != nil {
		t.Skip("needs glibc's ldconfig to read the cache back")
	}
	path := filepath.Join(t.TempDir(), "ld.so.cache")
	if err := os.WriteFile(path, Encode(entries), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), ldconfig, "-p", "-C", path).CombinedOutput()
	if err != nil {
		t.Fatalf("ldconfig -p: %v\n%s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if library, ok := strings.CutPrefix(line, "\t"); ok {
			lines = append(lines, strings.TrimSpace(library))
		}
	}
	return lines
}

func TestEncodeDoesNotReorderItsArgument(t *testing.T) {
	entries := []Entry{{Name: "liba.so"}, {Name: "libb.so"}}
	before := slices.Clone(entries)
	Encode(entries)
	if diff := cmp.Diff(before, entries); diff != "" {
		t.Errorf("the argument (-before +after):\n%s", diff)
	}
}
