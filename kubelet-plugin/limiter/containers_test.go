package limiter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The next agent has the limited containers too, until their control groups are gone. A container with devices of several claims has no claim.
func TestUsages(t *testing.T) {
	n := newNode(t)
	n.group("another", "misc")
	if err := os.WriteFile(filepath.Join(n.Hierarchy, "another", "dmem.events"), []byte("drm/0000:03:00.0/vram0 low 0 max 3\nnvidia/00000/vidmem low 0 max 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []hook.LimitRequest{
		{Group: "/limited", Devices: []hook.LimitedDevice{device("a", 0), device("b", 0)}, Namespace: "team", Pod: "p", Container: "c"},
		{Group: "/another", Devices: []hook.LimitedDevice{device("a", 0), device("a", 1)}},
	} {
		if err := n.limit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	next := New(n.Config)
	a := prepare.Ref{UID: "a", Namespace: "default", Name: "a"}
	want := map[string]Usage{
		"c": {GPU: "gpu-0", Namespace: "team", Pod: "p", Container: "c", LimitBytes: 4 * gib, UsedBytes: 3 * gib},
		"":  {GPU: "gpu-0", Claim: a, Namespace: "default", LimitBytes: 4 * gib, UsedBytes: 3 * gib, Refused: new(uint64(7))},
	}
	usages := func() map[string]Usage {
		t.Helper()
		all, err := next.Usages(t.Context())
		if err != nil {
			t.Error(err)
		}
		got := map[string]Usage{}
		for _, u := range all {
			got[u.Container] = u
		}
		return got
	}
	if diff := cmp.Diff(want, usages()); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
	n.err = errors.New("driver gone")
	if all, err := next.Usages(t.Context()); err == nil || len(all) > 0 {
		t.Errorf("usages %v, %v", all, err)
	}
	n.err = nil
	if err := errors.Join(os.RemoveAll(filepath.Join(n.Hierarchy, "another")), os.WriteFile(filepath.Join(n.Containers, "damaged.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	delete(want, "")
	if diff := cmp.Diff(want, usages()); diff != "" {
		t.Errorf("after a container ended (-want +got):\n%s", diff)
	}
	if left, err := filepath.Glob(filepath.Join(n.Containers, "*")); err != nil || len(left) != 1 {
		t.Errorf("records %q, %v", left, err)
	}
}
