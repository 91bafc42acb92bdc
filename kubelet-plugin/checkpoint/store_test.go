package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const trainer = "8c1f6c52-3a0e-4c5a-9a53-5d1a3e5b7f01"

// complaints collects the reports of a store.
type complaints struct {
	mutex sync.Mutex
	paths []string
}

func (c *complaints) report(path string, _ error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.paths = append(c.paths, filepath.Base(path))
}

func open(t *testing.T, dir string) (*Store, *complaints) {
	t.Helper()
	reported := &complaints{}
	s, err := Open(nil, dir, reported.report)
	if err != nil {
		t.Fatal(err)
	}
	return s, reported
}

// put copies a stored file into the folder as the record of the claim.
func put(t *testing.T, dir, stored, uid string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", stored))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, uid, data)
}

func write(t *testing.T, dir, uid string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, uid+".json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func whole(uid, gpuName string) prepare.Record {
	return prepare.Record{
		Ref: prepare.Ref{UID: uid, Namespace: "team", Name: "claim-" + uid}, State: prepare.StatePrepared, BootID: "boot",
		Wanted: []prepare.Wanted{{
			Result: prepare.Result{Request: "gpu", Pool: "pool", Device: gpuName},
			Use:    gpu.Device{GPU: gpuName, Use: gpu.Use{Shape: gpu.Whole}},
		}},
	}
}

func mig(uid, gpuName string, p gpu.Placement) prepare.Record {
	r := whole(uid, gpuName)
	r.Wanted[0].Use.Use = gpu.Use{Shape: gpu.MIG, Placement: p}
	r.Instances = []gpu.Instance{{GPU: gpuName, Placement: p, GI: 1, UUID: "MIG-" + uid, Multiprocessors: 16}}
	return r
}

func TestStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "claims")
	s, reported := open(t, dir)
	if _, err := s.Load("a"); !errors.Is(err, prepare.ErrNoRecord) {
		t.Fatalf("load of nothing: %v, want ErrNoRecord", err)
	}
	a, b := whole("a", "gpu-0"), mig("a-b", "gpu-1", gpu.Placement{Profile: 19, Start: 3, Size: 1})
	for _, r := range []prepare.Record{b, a} {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	again, _ := open(t, dir)
	got, err := again.List()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]prepare.Record{a, b}, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for _, uid := range []string{"a", "a", "a-b", "never"} {
		if err := s.Delete(uid); err != nil {
			t.Fatal(err)
		}
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if len(reported.paths) > 0 {
		t.Errorf("reported %v", reported.paths)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	text := rapid.StringN(0, 20, 60)
	number := rapid.IntRange(-1, 1<<40)
	placement := rapid.Custom(func(t *rapid.T) gpu.Placement {
		start := rapid.IntRange(0, gpu.MaxSlices-1).Draw(t, "start")
		return gpu.Placement{Profile: number.Draw(t, "profile"), Start: start, Size: rapid.IntRange(1, gpu.MaxSlices-start).Draw(t, "size")}
	})
	wanted := rapid.Custom(func(t *rapid.T) prepare.Wanted {
		w := prepare.Wanted{
			Result:   prepare.Result{Request: text.Draw(t, "request"), Pool: text.Draw(t, "pool"), Device: text.Draw(t, "device"), ShareID: text.Draw(t, "share")},
			Use:      gpu.Device{GPU: text.Draw(t, "gpu"), Use: gpu.Use{Shape: gpu.Shape(rapid.IntRange(int(gpu.Whole), int(gpu.Monitor)).Draw(t, "shape"))}},
			Admin:    rapid.Bool().Draw(t, "admin"),
			Settings: prepare.Settings{TimeSlice: text.Draw(t, "timeSlice"), MemoryLimitBytes: rapid.Int64().Draw(t, "most"), Extras: params.Extras(rapid.IntRange(0, 7).Draw(t, "extras"))},
			Interval: text.Draw(t, "interval"), MemoryLimit: rapid.Uint64().Draw(t, "limit"),
		}
		if w.Use.Shape.Shared() {
			w.Use.Share = gpu.Share{MemoryBytes: rapid.Uint64().Draw(t, "memory"), Shares: number.Draw(t, "shares"), Compute: number.Draw(t, "compute")}
		}
		if rapid.Bool().Draw(t, "private") {
			w.Settings.MPS = params.MPSSettings{Private: true, ActiveThreadPercentage: number.Draw(t, "percentage"), PinnedMemoryBytes: rapid.Int64().Draw(t, "pinned")}
			w.DaemonByLimit = rapid.Bool().Draw(t, "daemonByLimit")
		}
		if w.Use.Shape == gpu.MIG {
			w.Use.Placement = placement.Draw(t, "placement")
		}
		return w
	})
	instance := rapid.Custom(func(t *rapid.T) gpu.Instance {
		return gpu.Instance{
			GPU: text.Draw(t, "gpu"), Placement: placement.Draw(t, "placement"), GI: number.Draw(t, "gi"),
			CI: number.Draw(t, "ci"), UUID: text.Draw(t, "uuid"), Multiprocessors: number.Draw(t, "sms"),
		}
	})
	dir := t.TempDir()
	s, _ := open(t, dir)
	rapid.Check(t, func(t *rapid.T) {
		want := prepare.Record{
			Ref:       prepare.Ref{UID: rapid.StringMatching(`[a-z0-9-]{1,36}`).Draw(t, "uid"), Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name")},
			State:     rapid.SampledFrom(states).Draw(t, "state"),
			BootID:    text.Draw(t, "boot"),
			Wanted:    rapid.SliceOfN(wanted, 0, 4).Draw(t, "wanted"),
			Instances: rapid.SliceOfN(instance, 0, 4).Draw(t, "instances"),
		}
		if len(want.Wanted) == 0 {
			want.Wanted = nil
		}
		if len(want.Instances) == 0 {
			want.Instances = nil
		}
		if err := s.Save(want); err != nil {
			t.Fatal(err)
		}
		got, err := s.Load(want.UID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("record (-saved +loaded):\n%s", diff)
		}
	})
}

// TestStoredFiles reads files that older and newer agents wrote.
func TestStoredFiles(t *testing.T) {
	t.Parallel()
	slice := prepare.Wanted{
		Result: prepare.Result{Request: "slice", Pool: "node1-gpu.tessera.dev", Device: "gpu-0000-3b-00-0-mig-19-3"},
		Use:    gpu.Device{GPU: "gpu-0000-3b-00-0", Use: gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Start: 3, Size: 1}}},
	}
	big := prepare.Wanted{
		Result: prepare.Result{Request: "big", Pool: "node1-gpu.tessera.dev", Device: "gpu-0000-5d-00-0"},
		Use:    gpu.Device{GPU: "gpu-0000-5d-00-0", Use: gpu.Use{Shape: gpu.Whole}},
	}
	long := big
	long.Settings.TimeSlice = "Long"
	watch := prepare.Wanted{
		Result: prepare.Result{Request: "watch", Pool: "node1-gpu.tessera.dev", Device: "gpu-0000-86-00-0-monitor"},
		Use:    gpu.Device{GPU: "gpu-0000-86-00-0", Use: gpu.Use{Shape: gpu.Monitor}},
		Admin:  true,
	}
	oldest := prepare.Record{
		Ref: prepare.Ref{UID: trainer, Namespace: "team-a", Name: "trainer"}, State: prepare.StatePrepared,
		BootID: "3f0c2c0e-7f4e-4d55-8a58-2f6f6b0e6a11", Wanted: []prepare.Wanted{slice, big},
	}
	current := oldest
	current.Wanted = []prepare.Wanted{slice, long, watch}
	current.Instances = []gpu.Instance{{
		GPU: "gpu-0000-3b-00-0", Placement: gpu.Placement{Profile: 19, Start: 3, Size: 1},
		GI: 9, UUID: "MIG-5e4e5cd9-8d4a-5f52-b5a2-4b5f4a5f6a3d", Multiprocessors: 16,
	}}
	for stored, want := range map[string]prepare.Record{"v0.json": oldest, "v1.json": current, "v2.json": current} {
		t.Run(stored, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, stored, trainer)
			s, reported := open(t, dir)
			got, err := s.Load(trainer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			got.State = prepare.StateUnpreparing
			if err := s.Save(got); err != nil {
				t.Fatal(err)
			}
			if again, err := s.Load(trainer); err != nil || !cmp.Equal(again, got) {
				t.Errorf("written again: %v, %s", err, cmp.Diff(got, again))
			}
			if len(reported.paths) > 0 {
				t.Errorf("reported %v", reported.paths)
			}
		})
	}
}

// TestMemoryLimitsByDevice checks what a record of GPUs under one MPS daemon contains for agents with one limit per daemon: equal limits, by which they
// determine that the GPUs have one daemon. The devices' own limits survive such an agent.
func TestMemoryLimitsByDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	want := whole("a", "gpu-0")
	for i, bytes := range []int64{1 << 30, 0, 3 << 30} {
		w := want.Wanted[0]
		w.Device = fmt.Sprintf("gpu-%d", i)
		w.Settings.MPS = params.MPSSettings{Private: true, ActiveThreadPercentage: 50, PinnedMemoryBytes: bytes}
		want.Wanted = append(want.Wanted, w)
	}
	other, slice := want.Wanted[1], want.Wanted[1]
	other.Settings.MPS.ActiveThreadPercentage, slice.Use.Use = 20, gpu.Use{Shape: gpu.MIG, Placement: gpu.Placement{Profile: 19, Size: 1}}
	want.Wanted = append(want.Wanted[1:], other, slice)
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	stored := func() (limits []string) {
		data, err := os.ReadFile(filepath.Join(dir, "a.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range record(t, data)["devices"].([]any) {
			mps := d.(map[string]any)["mps"].(map[string]any)
			limits = append(limits, fmt.Sprint(mps["pinnedMemoryBytes"], " ", mps["deviceMemoryBytes"]))
		}
		return limits
	}
	const both = "3221225472 1073741824, 3221225472 0, 3221225472 3221225472, 1073741824 1073741824, 1073741824 1073741824"
	if got := strings.Join(stored(), ", "); got != both {
		t.Errorf("limits %s, want %s", got, both)
	}
	got, err := s.Load("a")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-saved +loaded):\n%s", err, diff)
	}

	// An agent of another release wrote a record without the field: its daemons serve GPUs with equal limits only.
	write(t, dir, "old", []byte(sealed(`{"version":1,"readableBy":1,"uid":"old","namespace":"team","name":"old","state":"Prepared","bootID":"boot","instances":[],`+
		`"devices":[{"device":"gpu-0","gpu":"gpu-0","shape":"gpu","mps":{"activeThreadPercentage":50,"pinnedMemoryBytes":1073741824}},`+
		`{"device":"gpu-1","gpu":"gpu-1","shape":"gpu","mps":{"activeThreadPercentage":50,"pinnedMemoryBytes":2147483648}}]}`)))
	for range 2 { // as read, and written again
		old, err := s.Load("old")
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range old.Wanted {
			if limit := int64(i+1) << 30; !w.DaemonByLimit || w.Settings.MPS.PinnedMemoryBytes != limit {
				t.Errorf("device %d: %+v", i, w)
			}
		}
		if err := s.Save(old); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnknownFieldsSurvive changes with this version what a newer one wrote: the newer version finds its own fields,
// next to the change.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "v2.json", trainer)
	s, _ := open(t, dir)
	r, err := s.Load(trainer)
	if err != nil {
		t.Fatal(err)
	}
	r.State = prepare.StateUnpreparing
	r.Wanted = r.Wanted[1:]
	if err := s.Save(r); err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile(filepath.Join("testdata", "v2.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := record(t, stored)
	want["state"] = "Unpreparing"
	devices, ok := want["devices"].([]any)
	if !ok {
		t.Fatal("the stored file has no devices")
	}
	want["devices"] = devices[1:]
	data, err := os.ReadFile(filepath.Join(dir, trainer+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, record(t, data)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func record(t *testing.T, file []byte) map[string]any {
	t.Helper()
	body, err := unwrap(file)
	if err != nil {
		t.Fatal(err)
	}
	object, err := fields(body)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestNewerRecord checks that a record that this version cannot read is not changed.
func TestNewerRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "v3.json", trainer)
	s, reported := open(t, dir)
	if err := s.Save(whole("other", "gpu-1")); err != nil {
		t.Fatal(err)
	}
	_, err := s.Load(trainer)
	if err == nil || errors.Is(err, prepare.ErrNoRecord) || unreadable(err) {
		t.Errorf("load: %v, want another error", err)
	}
	if err == nil || !strings.Contains(err.Error(), "upgrade the agent") {
		t.Errorf("load: %v, want what to do", err)
	}
	if err := s.Save(whole(trainer, "gpu-0")); err == nil {
		t.Error("it was overwritten")
	}
	for range 2 {
		if records, err := s.List(); err != nil || len(records) != 1 {
			t.Errorf("list: %d records, %v, want the other one", len(records), err)
		}
	}
	if _, all, err := s.Held(); all || err != nil {
		t.Errorf("held: all %v, %v, although a record is not understood", all, err)
	}
	if diff := cmp.Diff([]string{trainer + ".json"}, reported.paths); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	before, _ := os.ReadFile(filepath.Join("testdata", "v3.json"))
	after, _ := os.ReadFile(filepath.Join(dir, trainer+".json"))
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the file changed:\n%s", diff)
	}
}

func unreadable(err error) bool {
	var unreadable *prepare.UnreadableRecord
	return errors.As(err, &unreadable)
}

// sealed returns the content of a file with the record and its checksum.
func sealed(record string) string {
	return fmt.Sprintf(`{"checksum":%q,"record":%s}`, checksum([]byte(record)), record)
}

func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty":            "",
		"zeroes":           "\x00\x00\x00\x00",
		"half":             `{"checksum":"sha256:12`,
		"no checksum":      `{"record":{"version":1,"uid":"a","state":"Prepared"}}`,
		"another object":   `{}`,
		"null":             `null`,
		"unwrapped v1":     `{"version":1,"uid":"a","state":"Prepared"}`,
		"v0 without state": `{"version":0,"uid":"a"}`,
		"another claim":    `{"version":0,"uid":"b","phase":"Prepared"}`,
		"negative span":    `{"version":0,"uid":"a","phase":"Prepared","devices":[{"shape":"mig","placement":[19,0,-1]}]}`,
		"empty span":       `{"version":0,"uid":"a","phase":"Prepared","devices":[{"shape":"mig","placement":[19,0,0]}]}`,
		"span before 0":    `{"version":0,"uid":"a","phase":"Prepared","devices":[{"shape":"mig","placement":[19,-1,1]}]}`,
		"span beyond all":  `{"version":0,"uid":"a","phase":"Prepared","devices":[{"shape":"mig","placement":[19,16,1]}]}`,
		"sealed v0":        sealed(`{"version":0,"uid":"a","state":"Prepared"}`),
		"sealed list":      sealed(`[]`),
		"without state":    sealed(`{"version":1,"uid":"a"}`),
		"unknown shape":    `{"version":0,"uid":"a","phase":"Prepared","devices":[{"shape":"cube"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, reported := open(t, dir)
			if err := s.Save(whole("sound", "gpu-1")); err != nil {
				t.Fatal(err)
			}
			if _, err := decode([]byte(data)); name != "another claim" && !errors.Is(err, errDamaged) {
				t.Errorf("decode: %v", err)
			}
			write(t, dir, "a", []byte(data))
			if records, err := s.List(); err != nil || len(records) != 1 {
				t.Errorf("list: %d records, %v, want the sound one", len(records), err)
			}
			for range 2 {
				if _, err := s.Load("a"); !unreadable(err) {
					t.Errorf("load: %v, want Unreadable", err)
				}
			}
			if diff := cmp.Diff([]string{"a.json.unreadable-1", "sound.json"}, files(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if aside, _ := os.ReadFile(filepath.Join(dir, "a.json.unreadable-1")); string(aside) != data {
				t.Errorf("set aside: %q, want it as it was", aside)
			}
			if diff := cmp.Diff([]string{"a.json.unreadable-1"}, reported.paths); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}

			write(t, dir, "a", []byte(data))
			if _, err := s.Load("a"); !unreadable(err) {
				t.Errorf("load of a second one: %v, want Unreadable", err)
			}
			if diff := cmp.Diff([]string{"a.json.unreadable-1", "a.json.unreadable-2"}, reported.paths); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}

			if err := s.Save(whole("a", "gpu-0")); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Load("a"); err != nil {
				t.Errorf("load of the new one: %v", err)
			}
			if err := s.Delete("a"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"sound.json"}, files(t, dir)); diff != "" {
				t.Errorf("files after the claim's end (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSalvage recovers the claim's name from a record that is damaged elsewhere.
func TestSalvage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	if err := s.Save(whole("a", "gpu-0")); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(s.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	named, nameless := prepare.Ref{UID: "a", Namespace: "team", Name: "claim-a"}, prepare.Ref{UID: "a"}
	for _, test := range []struct {
		data string
		want prepare.Ref
	}{
		{strings.Replace(string(sound), "Prepared", "Preqared", 1), named},
		{string(sound[:len(sound)-2]), nameless},
		{strings.Replace(string(sound), `"uid":"a"`, `"uid":"b"`, 1), nameless},
	} {
		write(t, dir, "a", []byte(test.data))
		_, err := s.Load("a")
		var unreadable *prepare.UnreadableRecord
		if !errors.As(err, &unreadable) || unreadable.Claim != test.want {
			t.Errorf("load of %s: %v, want the claim %+v", test.data, err, test.want)
		}
	}
}

// TestEveryBit flips every bit of a record's file, and truncates the file at every byte: a read returns the record or
// none.
func TestEveryBit(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("testdata", "v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, data []byte) {
		if got, err := decode(data); err == nil && !cmp.Equal(want, got) {
			t.Fatalf("%s: read as another record:\n%s", what, cmp.Diff(want, got))
		}
	}
	for i := range data {
		check(fmt.Sprintf("cut at %d", i), data[:i])
		for bit := range 8 {
			data[i] ^= 1 << bit
			check(fmt.Sprintf("bit %d of byte %d", bit, i), data)
			data[i] ^= 1 << bit
		}
	}
}

// TestPowerCut has the state of a crash before the rename: the next content, half written.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, reported := open(t, dir)
	if err := s.Save(whole("a", "gpu-0")); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"a", "b"} {
		if err := os.WriteFile(atomicfile.TemporaryPath(s.path(uid)), []byte(`{"check`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if records, err := s.List(); err != nil || len(records) != 1 {
		t.Errorf("list: %d records, %v, want the old one", len(records), err)
	}
	if _, err := s.Load("b"); !errors.Is(err, prepare.ErrNoRecord) {
		t.Errorf("load: %v, want ErrNoRecord", err)
	}
	if err := s.Save(whole("a", "gpu-1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a.json"}, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if len(reported.paths) > 0 {
		t.Errorf("reported %v", reported.paths)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	watch := whole("watch", "gpu-2")
	watch.Wanted[0].Admin = true
	at := gpu.Placement{Profile: 14, Start: 2, Size: 2}
	for _, r := range []prepare.Record{mig("a", "gpu-0", at), whole("b", "gpu-1"), watch} {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	want := []gpu.Device{{GPU: "gpu-0", Use: gpu.Use{Shape: gpu.MIG, Placement: at}}, {GPU: "gpu-1", Use: gpu.Use{Shape: gpu.Whole}}}
	held, all, err := s.Held()
	if diff := cmp.Diff(want, held); diff != "" || !all || err != nil {
		t.Errorf("held: all %v, %v (-want +got):\n%s", all, err, diff)
	}
	write(t, dir, "a", []byte("damaged"))
	for range 2 {
		held, all, err = s.Held()
		if diff := cmp.Diff(want[1:], held); diff != "" || all || err != nil {
			t.Errorf("held, with a damaged record: all %v, %v (-want +got):\n%s", all, err, diff)
		}
	}
}

// What a damaged record contains is available to the owner of the hardware, and the claim is listed until its record is deleted.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	if err := s.Save(whole("b", "gpu-1")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"record": {"uid": "a", "namespace": "team", "name": "first"`, `{"record": {"uid": "a", "namespace": "team", "name": "x"}}`} {
		write(t, dir, "a", []byte(text))
		var unreadable *prepare.UnreadableRecord
		if _, err := s.Load("a"); !errors.As(err, &unreadable) || !strings.Contains(unreadable.Text, text) {
			t.Errorf("load: %v, want the damaged text", err)
		}
	}
	if got, err := s.Unreadable(); !slices.Equal(got, []string{"a"}) || err != nil {
		t.Errorf("unreadable: %v, %v", got, err)
	}
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Unreadable(); len(got) > 0 || err != nil {
		t.Errorf("unreadable after the deletion: %v, %v", got, err)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	leaving, before := whole("leaving", "gpu-1"), whole("before", "gpu-2")
	leaving.State, before.BootID = prepare.StateUnpreparing, "another"
	for _, r := range []prepare.Record{whole("ready", "gpu-0"), leaving, before} {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	count := func(when string, want int) {
		t.Helper()
		if got, err := s.Count("boot"); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", when, got, err, want)
		}
	}
	count("two of this boot", 2)
	for _, test := range []struct {
		gpus []string
		want int
	}{{[]string{"gpu-0"}, 1}, {[]string{"gpu-0", "gpu-1"}, 1}, {[]string{"gpu-2"}, 0}, {nil, 0}} {
		if got, err := s.CountOn("boot", test.gpus); err != nil || got != test.want {
			t.Errorf("claims of %v: %d, %v, want %d", test.gpus, got, err, test.want)
		}
	}
	write(t, dir, "ready", []byte("damaged"))
	count("one of them damaged", 2)
	count("and set aside", 2)
	write(t, dir, "ready", []byte("damaged again"))
	count("twice", 2)
	for _, uid := range []string{"ready", "leaving"} {
		if err := s.Delete(uid); err != nil {
			t.Fatal(err)
		}
	}
	count("none", 0)
}

// TestTwoAgents has two stores over one folder that write their own claims and list all the time, like two agents during
// an upgrade.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var group sync.WaitGroup
	for agent := range 2 {
		s, reported := open(t, dir)
		for claim := range 4 {
			group.Go(func() {
				uid := fmt.Sprintf("claim-%d-%d", agent, claim)
				for range 10 {
					for _, state := range states {
						r := whole(uid, "gpu-0")
						r.State = state
						if err := s.Save(r); err != nil {
							t.Error(err)
						}
						if got, err := s.Load(uid); err != nil || got.State != state {
							t.Errorf("load: %v %v, want %v", got.State, err, state)
						}
						if _, err := s.List(); err != nil {
							t.Error(err)
						}
						if _, all, err := s.Held(); !all || err != nil {
							t.Errorf("held: all %v, %v", all, err)
						}
					}
					if err := s.Delete(uid); err != nil {
						t.Error(err)
					}
				}
			})
		}
		defer func() {
			if len(reported.paths) > 0 {
				t.Errorf("reported %v", reported.paths)
			}
		}()
	}
	group.Wait()
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFolderGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := open(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(whole("a", "gpu-0")); err == nil {
		t.Error("save succeeded")
	}
	if _, err := s.Load("a"); err == nil || errors.Is(err, prepare.ErrNoRecord) {
		t.Errorf("load: %v, want an error that is not ErrNoRecord", err)
	}
	if _, err := s.List(); err == nil {
		t.Error("list succeeded")
	}
	if err := s.Delete("a"); err == nil {
		t.Error("delete succeeded")
	}
	if _, err := s.Unreadable(); err == nil {
		t.Error("the unreadable records were listed")
	}
	if _, err := s.Count("boot"); err == nil {
		t.Error("the records were counted")
	}
	if _, err := Open(nil, "/dev/null/claims", nil); err == nil {
		t.Error("open below a file succeeded")
	}
}

// A file that cannot be read is neither no record nor a damaged one.
func TestRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, reported := open(t, dir)
	if err := os.Mkdir(s.path("a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("a"); err == nil || errors.Is(err, prepare.ErrNoRecord) || errors.Is(err, errDamaged) {
		t.Errorf("load: %v", err)
	}
	if len(reported.paths) > 0 {
		t.Errorf("reported %v", reported.paths)
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		whole, part string
		want        bool
	}{
		{`{"a":1,"b":2}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":[1,2]}`, `{"a":[1,2]}`, true},
		{`{"a":[1,2]}`, `{"a":[1,3]}`, false},
		{`{"a":[1,2,3]}`, `{"a":[1,2]}`, false},
		{`{"a":[{"b":1,"c":2}]}`, `{"a":[{"b":1}]}`, true},
		{`{"a":1}`, `{"a":[]}`, false},
		{`{"a":1}`, `{"a":{}}`, false},
	} {
		whole, err := fields([]byte(test.whole))
		if err != nil {
			t.Fatal(err)
		}
		part, err := fields([]byte(test.part))
		if err != nil {
			t.Fatal(err)
		}
		if covers(whole, part) != test.want {
			t.Errorf("%s covers %s: %v, want %v", test.whole, test.part, !test.want, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, stored := range []string{"v0.json", "v1.json", "v2.json", "v3.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", stored))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		if body, err := unwrap(data); err == nil && body != nil {
			f.Add([]byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// As a whole file, and as a record with the right checksum.
		for _, file := range [][]byte{data, fmt.Appendf(nil, `{"checksum":%q,"record":%s}`, checksum(data), data)} {
			r, err := decode(file)
			if err != nil {
				continue
			}
			for _, w := range r.Wanted {
				if w.Use.Shape == gpu.MIG && w.Use.Placement.Mask() == 0 {
					t.Fatalf("a placement of no slices was read: %v", w.Use.Placement)
				}
			}
			again, err := encode(r, file)
			if err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			got, err := decode(again)
			if err != nil || !cmp.Equal(r, got) {
				t.Fatalf("written and read again: %v\n%s", err, cmp.Diff(r, got))
			}
		}
	})
}
