package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
)

func openHealth(t *testing.T, dir string) (*Health, *complaints) {
	t.Helper()
	reported := &complaints{}
	h, err := OpenHealth(nil, dir, reported.report)
	if err != nil {
		t.Fatal(err)
	}
	return h, reported
}

// faultyHealth is the content of testdata/health-v1.json.
func faultyHealth() gpu.Health {
	since := time.Date(2026, 11, 22, 18, 0, 0, 123456789, time.UTC)
	return gpu.Health{
		Boot: "boot-1", Links: map[string]int{"gpu-0000-3b-00-0": 18, "gpu-0000-5d-00-0": 12}, Resets: map[string]time.Time{"gpu-0000-3b-00-0": since},
		Faults: []gpu.Fault{
			{
				GPU: "gpu-0000-3b-00-0", UUID: "GPU-a", Placement: gpu.Placement{Profile: 19, Start: 3, Size: 1}, Signal: gpu.SignalXID, XID: 94,
				Severity: gpu.Critical, Remedy: gpu.Restart, Since: since, Last: since.Add(time.Minute), Count: 7, Boot: "boot-1", Quiet: 5 * time.Minute,
			},
			{
				GPU: "gpu-0000-5d-00-0", UUID: "GPU-b", Signal: gpu.SignalHeat, Severity: gpu.Warning, Detail: "it is hot",
				Since: since, Last: since.Add(time.Hour), Count: 3600, Boot: "boot-1", Gone: since.Add(time.Hour), Quiet: 10 * time.Minute, Over: since.Add(70 * time.Minute),
			},
		},
	}
}

func leads() bool { return true }

func saveHealth(t *testing.T, store *Health, health gpu.Health) {
	t.Helper()
	if saved, err := store.SaveHealth(health, leads); err != nil || !saved {
		t.Fatalf("saved %t, %v", saved, err)
	}
}

func expectHealth(t *testing.T, store *Health, want gpu.Health) {
	t.Helper()
	got, err := store.LoadHealth()
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("loaded, %v (-want +got):\n%s", err, diff)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "health")
	store, reported := openHealth(t, dir)
	expectHealth(t, store, gpu.Health{})
	saveHealth(t, store, faultyHealth())
	again, _ := openHealth(t, dir)
	expectHealth(t, again, faultyHealth())
	saveHealth(t, again, gpu.Health{Boot: "boot-2"})
	expectHealth(t, store, gpu.Health{Boot: "boot-2"})
	if len(reported.paths) > 0 {
		t.Errorf("reported %v", reported.paths)
	}
}

// The same health is always the same file.
func TestHealthIsStoredInOrder(t *testing.T) {
	t.Parallel()
	h := gpu.Health{Boot: "boot", Links: map[string]int{}, Resets: map[string]time.Time{}}
	for i := range 16 {
		name := fmt.Sprintf("gpu-%02d", i)
		h.Links[name], h.Resets[name] = i, time.Unix(int64(i), 0).UTC()
	}
	first, err := encodeHealth(h, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := encodeHealth(h, nil); err != nil || !bytes.Equal(first, again) {
			t.Fatalf("error %v (-first +again):\n%s", err, cmp.Diff(string(first), string(again)))
		}
	}
}

// Every field of a fault is persisted: a new field of the model needs a field in the file.
func TestHealthRoundTripKeepsEveryField(t *testing.T) {
	t.Parallel()
	store, _ := openHealth(t, t.TempDir())
	want := faultyHealth()
	f := reflect.ValueOf(&want.Faults[0]).Elem()
	for i := range f.NumField() {
		if !f.Field(i).IsZero() {
			continue
		}
		switch value := f.Field(i).Addr().Interface().(type) {
		case *string:
			*value = "text"
		case *int:
			*value = 3
		case *time.Time:
			*value = want.Faults[0].Last
		case *time.Duration:
			*value = time.Hour
		case *bool:
			*value = true
		default:
			t.Errorf("%s: a kind of field that this test does not support", f.Type().Field(i).Name)
		}
	}
	saveHealth(t, store, want)
	expectHealth(t, store, want)
}

// Every release reads what earlier releases wrote.
func TestStoredHealth(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "health-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	store, _ := openHealth(t, dir)
	if err := os.WriteFile(store.path(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	expectHealth(t, store, faultyHealth())
	other := t.TempDir()
	fresh, _ := openHealth(t, other)
	saveHealth(t, fresh, faultyHealth())
	written, err := os.ReadFile(fresh.path())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, written) {
		t.Errorf("the same is written otherwise than it was:\n%s", written)
	}
}

// newer returns the file with changes of a newer agent to its record.
func newer(t *testing.T, data []byte, change func(record map[string]any)) []byte {
	t.Helper()
	var file envelope
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	record, err := fields(file.Record)
	if err != nil {
		t.Fatal(err)
	}
	change(record)
	body, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"checksum":%q,"record":%s}`, checksum(body), body)
}

func TestUnknownFieldsOfHealthSurvive(t *testing.T) {
	t.Parallel()
	store, _ := openHealth(t, t.TempDir())
	saveHealth(t, store, faultyHealth())
	data, err := os.ReadFile(store.path())
	if err != nil {
		t.Fatal(err)
	}
	data = newer(t, data, func(record map[string]any) {
		record["version"], record["mood"] = 2, "sad"
		for _, f := range record["faults"].([]any) {
			fault := f.(map[string]any)
			fault["smell"] = fault["gpu"]
		}
	})
	if err := os.WriteFile(store.path(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	expectHealth(t, store, faultyHealth())
	changed := faultyHealth()
	changed.Faults[0].Count, changed.Faults[0].Over = 8, time.Time{}
	changed.Faults[1].Over, changed.Faults[1].Gone = time.Time{}, time.Time{}
	changed.Links = nil
	saveHealth(t, store, changed)
	expectHealth(t, store, changed)
	text, err := os.ReadFile(store.path())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"smell":"gpu-0000-3b-00-0"`) {
		t.Errorf("a fault has lost its field: %s", text)
	}
	changed.Faults = changed.Faults[1:]
	saveHealth(t, store, changed)
	expectHealth(t, store, changed)
	if text, err = os.ReadFile(store.path()); err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{`"version":2`, `"mood":"sad"`, `"smell":"gpu-0000-5d-00-0"`} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("%s is gone from %s", kept, text)
		}
	}
	if strings.Contains(string(text), `"smell":"gpu-0000-3b-00-0"`) {
		t.Errorf("a dropped fault came back: %s", text)
	}
	saveHealth(t, store, faultyHealth()) // a fault that the file does not have
	expectHealth(t, store, faultyHealth())
}

// A file that only newer agents can read is not changed.
func TestNewerHealth(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(map[string]any){
		"explicit":      func(record map[string]any) { record["version"], record["readableBy"] = 3, 2 },
		"does not work": func(record map[string]any) { record["version"], record["faults"] = 2, "none" },
	} {
		t.Run(name, func(t *testing.T) {
			store, reported := openHealth(t, t.TempDir())
			saveHealth(t, store, faultyHealth())
			data, err := os.ReadFile(store.path())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(store.path(), newer(t, data, change), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = store.LoadHealth()
			var newer *newerError
			if !errors.As(err, &newer) || len(reported.paths) > 0 {
				t.Errorf("load: %v, reported %v, want that it is newer", err, reported.paths)
			}
		})
	}
}

func TestDamagedHealth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, reported := openHealth(t, dir)
	saveHealth(t, store, faultyHealth())
	good, err := os.ReadFile(store.path())
	if err != nil {
		t.Fatal(err)
	}
	damages := [][]byte{
		nil, []byte("{}"), []byte("null"), []byte("damaged"), good[:len(good)/2], bytes.Replace(good, []byte("94"), []byte("95"), 1),
		newer(t, good, func(record map[string]any) { record["faults"] = 1 }),
		newer(t, good, func(record map[string]any) { record["version"] = 0 }),
		newer(t, good, func(record map[string]any) { record["faults"] = []any{map[string]any{"gpu": "gpu-0", "quiet": "long"}} }),
		newer(t, good, func(record map[string]any) {
			record["faults"] = []any{map[string]any{"gpu": "gpu-0", "quiet": "1s", "placement": map[string]any{"size": -1}}}
		}),
	}
	for n, data := range damages {
		if err := os.WriteFile(store.path(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			expectHealth(t, store, gpu.Health{})
		}
		if want := fmt.Sprintf("health.json.unreadable-%d", n+1); len(reported.paths) != n+1 || reported.paths[n] != want {
			t.Errorf("damage %d: reported %v, want %s, once", n, reported.paths, want)
		}
		kept, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("health.json.unreadable-%d", n+1)))
		if err != nil || !bytes.Equal(kept, data) {
			t.Errorf("damage %d was not set aside: %v", n, err)
		}
		saveHealth(t, store, faultyHealth())
		expectHealth(t, store, faultyHealth())
	}
}

// A crash during a write keeps the old file, and the remains of the new one do not affect later writes.
func TestHealthPowerCut(t *testing.T) {
	t.Parallel()
	store, _ := openHealth(t, t.TempDir())
	saveHealth(t, store, faultyHealth())
	if err := os.WriteFile(atomicfile.TemporaryPath(store.path()), []byte(`{"checks`), 0o600); err != nil {
		t.Fatal(err)
	}
	expectHealth(t, store, faultyHealth())
	saveHealth(t, store, gpu.Health{Boot: "boot-2"})
	expectHealth(t, store, gpu.Health{Boot: "boot-2"})
}

// Two agents may write at the same time: every read returns what one of them wrote.
func TestTwoAgentsSaveHealth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var group sync.WaitGroup
	for agent := range 2 {
		store, reported := openHealth(t, dir)
		health := faultyHealth()
		health.Boot = fmt.Sprint("boot-", agent)
		group.Go(func() {
			for range 20 {
				if _, err := store.SaveHealth(health, leads); err != nil {
					t.Error(err)
				}
				got, err := store.LoadHealth()
				got.Boot = health.Boot
				if err != nil || !cmp.Equal(health, got) {
					t.Errorf("loaded %+v, %v", got, err)
				}
			}
		})
		defer func() {
			if len(reported.paths) > 0 {
				t.Errorf("reported %v", reported.paths)
			}
		}()
	}
	group.Wait()
}

// A write that waited until another agent became the leader is not made: leads is called when no other process can
// write.
func TestFormerLeaderSavesNoHealth(t *testing.T) {
	t.Parallel()
	store, _ := openHealth(t, t.TempDir())
	saveHealth(t, store, faultyHealth())
	overtaken := func() bool {
		file, err := os.Open(filepath.Join(store.dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		question := &unix.Flock_t{Type: unix.F_RDLCK}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, question); err != nil || question.Type == unix.F_UNLCK {
			t.Errorf("Leads was called although no leader is required: %v", err)
		}
		return false
	}
	if saved, err := store.SaveHealth(gpu.Health{Boot: "boot-2"}, overtaken); saved || err != nil {
		t.Errorf("saved %t, %v", saved, err)
	}
	expectHealth(t, store, faultyHealth())
}

func TestHealthFolderGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, _ := openHealth(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := store.SaveHealth(faultyHealth(), leads); err == nil {
		t.Error("save succeeded")
	}
	if _, err := store.LoadHealth(); err == nil {
		t.Error("load succeeded")
	}
	if _, err := OpenHealth(nil, "/dev/null/health", nil); err == nil {
		t.Error("open below a file succeeded")
	}
}

func FuzzDecodeHealth(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "health-v1.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	if body, err := unwrap(data); err == nil {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// As a whole file, and as a record with the right checksum.
		for _, file := range [][]byte{data, fmt.Appendf(nil, `{"checksum":%q,"record":%s}`, checksum(data), data)} {
			h, err := decodeHealth(file)
			if err != nil {
				continue
			}
			again, err := encodeHealth(h, file)
			if err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			if got, err := decodeHealth(again); err != nil || !cmp.Equal(h, got) {
				t.Fatalf("written and read again: %v\n%s", err, cmp.Diff(h, got))
			}
		}
	})
}
