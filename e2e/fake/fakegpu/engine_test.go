package fakegpu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// TestLayoutHasNoPadding checks the condition under which the Go types and the C types are the same
// bytes.
func TestLayoutHasNoPadding(t *testing.T) {
	t.Parallel()
	if packed, actual := binary.Size(stateFile{}), int(unsafe.Sizeof(stateFile{})); packed != actual {
		t.Errorf("the state has %d bytes of fields in %d bytes", packed, actual)
	}
}

func TestNamesInC(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"MaxMIG": "max_mig", "UUID": "uuid", "PendingMIG": "pending_mig", "MIGNeedsReset": "mig_needs_reset",
		"gpuPart": "gpu_part", "CreateMS": "create_ms", "MajorGPU": "major_gpu",
	} {
		if got := snake(name); got != want {
			t.Errorf("snake(%s) = %s, want %s", name, got, want)
		}
	}
}

// TestEveryFunctionIsExported compares the library's symbols with the header of the pinned go-nvml,
// for a new driver and for one of a branch that lacks the newer functions.
func TestEveryFunctionIsExported(t *testing.T) {
	t.Parallel()
	header, err := nvmlHeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := symbolsOf(header)
	if len(all) < 400 || !slices.Contains(all, "nvmlErrorString") || !slices.Contains(all, "nvmlInit_v2") {
		t.Fatalf("the header has only %d functions: %v", len(all), all)
	}
	private := []string{"fakegpuGetTimeSlice", "fakegpuReset", "fakegpuSetTimeSlice"}
	tests := map[string][]string{"580.65.06": all}
	for _, b := range branches() {
		for _, name := range b.lacking {
			if !slices.Contains(all, name) {
				t.Errorf("branch %d lacks %s, and so does the header", b.last, name)
			}
		}
		tests[fmt.Sprintf("%d.1.2", b.last)] = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(b.lacking, name) })
	}
	for version, want := range tests {
		got, err := exported(Library(install(t, Spec{Machine: "t4x1", DriverVersion: version})))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append(private, want...), got); diff != "" {
			t.Errorf("driver %s: symbols (-want +got):\n%s", version, diff)
		}
	}
}

func TestSymbolsOf(t *testing.T) {
	t.Parallel()
	header := "nvmlReturn_t DECLDIR nvmlB(void);\nconst DECLDIR char* nvmlErrorString(nvmlReturn_t r);\n" +
		"DEPRECATED(13.0) nvmlReturn_t DECLDIR nvmlA(\n  int x);\n#define DECLDIR\nnvmlReturn_t  DECLDIR nvmlB(void);\n"
	if diff := cmp.Diff([]string{"nvmlA", "nvmlB", "nvmlErrorString"}, symbolsOf(header)); diff != "" {
		t.Errorf("symbolsOf (-want +got):\n%s", diff)
	}
}
