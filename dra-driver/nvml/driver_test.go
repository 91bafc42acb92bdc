package nvml

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/driver"
)

// TestNVIDIAsLibrary connects to the real libnvidia-ml where no kernel module is loaded, and compares the functions that it lacks with the list of its
// branch. The fake library of the branch lacks those too, so that the tests of older drivers meet them.
func TestNVIDIAsLibrary(t *testing.T) {
	driver.Each(t, func(t *testing.T, root driver.Root) {
		library := root.Library("libnvidia-ml")
		for range 2 { // the first failure leaves nothing behind
			_, err := connect(library)
			if want := "nvmlInitWithFlags: Driver Not Loaded (9)"; !errors.Is(err, gpu.ErrNoDriver) || !strings.Contains(err.Error(), want) {
				t.Errorf("connect: got %v, want no driver and %q", err, want)
			}
		}
		lacking := missing(t, library)
		branch, _, _ := strings.Cut(root.Version, ".")
		golden := filepath.Join("testdata", "missing-"+branch+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(strings.Join(lacking, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Fields(string(text)), lacking); diff != "" {
			t.Errorf("functions that %s lacks (-want +got), write them with -update:\n%s", root.Version, diff)
		}
	})
}

// TestFakeLacksWhatDriversLack: the fake library of a branch lacks at least the functions that the driver of the branch lacks.
func TestFakeLacksWhatDriversLack(t *testing.T) {
	lists, err := filepath.Glob("testdata/missing-*.txt")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	for _, list := range lists {
		branch := regexp.MustCompile(`\d+`).FindString(list)
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := fakegpu.Install(t.Context(), dir, fakegpu.Spec{Machine: "t4x1", DriverVersion: branch + ".1.2"}); err != nil {
			t.Fatal(err)
		}
		lacking := missing(t, fakegpu.Library(dir))
		for _, name := range strings.Fields(string(text)) {
			if !slices.Contains(lacking, name) {
				t.Errorf("branch %s: the fake has %s", branch, name)
			}
		}
	}
}

// missing returns the functions that go-nvml calls and that the library does not export.
func missing(t *testing.T, library string) []string {
	t.Helper()
	file, err := elf.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(calledByGoNVML(t), func(name string) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
	})
}
