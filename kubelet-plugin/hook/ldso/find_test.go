package ldso

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What is encoded is found, behind a cache in the old format too.
func TestFind(t *testing.T) {
	cache := Encode([]Entry{
		{Name: "libcuda.so.1", Path: "/usr/local/nvidia/lib64/libcuda.so.1", ABI: X8664},
		{Name: "libcuda.so.1", Path: "/usr/lib32/libcuda.so.1", ABI: I386},
		{Name: "libz.so.1", Path: "/lib/libz.so.1", ABI: X8664},
		{Name: "libz.so.1", Path: "/usr/local/lib/libz.so.1", ABI: X8664},
		{Name: "libz.so.1", Path: "/lib/glibc-hwcaps/x86-64-v3/libz.so.1.3", ABI: X8664, Hwcap: "x86-64-v3"},
	})
	for _, front := range []string{"", "ld.so-1.7.0\x00\x00\x00\x00\x00"} {
		for name, want := range map[string][]string{
			"libcuda.so.1": {"/usr/local/nvidia/lib64/libcuda.so.1"},
			"libz.so.1":    {"/lib/libz.so.1", "/usr/local/lib/libz.so.1"},
			"libz.so":      nil,
		} {
			if diff := cmp.Diff(want, Find(append([]byte(front), cache...), name, X8664)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// Every library that glibc's own ldconfig lists of this machine is found in its cache.
func TestFindReadsLdconfigsCache(t *testing.T) {
	const file = "/etc/ld.so.cache"
	cache, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("needs a machine with glibc: %v", err)
	}
	ldconfig, err := exec.LookPath("ldconfig")
	if err != nil {
		ldconfig = "/sbin/ldconfig"
	}
	out, err := exec.CommandContext(t.Context(), ldconfig, "-p").Output()
	if err != nil {
		t.Fatal(err)
	}
	libraries := 0
	for line := range strings.Lines(string(out)) {
		name, path, ok := strings.Cut(strings.TrimSpace(line), " (libc6,x86-64) => ")
		if !ok {
			continue
		}
		libraries++
		if found := Find(cache, name, X8664); len(found) == 0 || filepath.Base(found[0]) != filepath.Base(path) {
			t.Errorf("%s: got %v, ldconfig has %s", name, found, path)
		}
	}
	if libraries == 0 {
		t.Skipf("%s has no library for x86-64", file)
	}
}

// A damaged cache is no error and costs no more than its size.
func TestFindInDamagedCaches(t *testing.T) {
	valid := Encode([]Entry{{Name: "liba.so.1", Path: "/lib/liba.so.1", ABI: X8664}, {Name: "libb.so.1", Path: "/lib/libb.so.1", ABI: X8664}})
	rapid.Check(t, func(t *rapid.T) {
		cache := append([]byte(nil), valid...)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			cache[rapid.IntRange(0, len(cache)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		Find(cache[:rapid.IntRange(0, len(cache)).Draw(t, "length")], "liba.so.1", X8664)
	})
	endless := append(append([]byte(magic), 0xff, 0xff, 0xff, 0xff), make([]byte, headerSize)...)
	for len(endless) < 4<<20 {
		endless = append(endless, "\x03\x03\x00\x00\x04\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	}
	began := time.Now()
	if found := Find(endless, "liba.so.1", X8664); found != nil {
		t.Errorf("found %v", found)
	}
	t.Logf("4 MiB of entries: %v", time.Since(began))
}
