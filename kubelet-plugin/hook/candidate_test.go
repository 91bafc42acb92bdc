package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/kubelet-plugin/hook/ldso"
)

// A link counts as one if its name is the soname, or the soname without its version; every other entry counts as a file of its library's soname.
func TestCandidates(t *testing.T) {
	for _, test := range []struct {
		name, soname string
		link         bool
		want         candidate
	}{
		{"libcuda.so.580", "libcuda.so.1", false, candidate{key: "libcuda.so.1"}},
		{"libcuda.so.1", "libcuda.so.1", true, candidate{key: "libcuda.so.1", link: true}},
		{"libcuda.so", "libcuda.so.1", true, candidate{key: "libcuda.so", link: true}},
		{"libcuda.so", "libcuda.so.1", false, candidate{key: "libcuda.so.1"}},
		{"libother.so", "libcuda.so.1", true, candidate{key: "libcuda.so.1"}},
		{"libcuda.so.0", "libcuda.so.1", true, candidate{key: "libcuda.so.1"}},
		{"libcuda", "libcuda.so.1", true, candidate{key: "libcuda.so.1"}},
		{"libplain.so", "", true, candidate{key: "libplain.so", link: true}},
	} {
		test.want.name = test.name
		if got := candidateOf(test.name, ldso.Library{Name: test.soname}, test.link); got != test.want {
			t.Errorf("%s with soname %q, link %t: got %+v, want %+v", test.name, test.soname, test.link, got, test.want)
		}
	}
}

// Of several candidates a file is taken before a link, and the higher version before the lower one, in whatever order they are found.
func TestPreferredCandidate(t *testing.T) {
	old, later := candidate{key: "k", name: "lib.so.2"}, candidate{key: "k", name: "lib.so.10"}
	linkOld, linkLater := candidate{key: "k", name: "lib.so.2", link: true}, candidate{key: "k", name: "lib.so.10", link: true}
	for _, test := range []struct{ a, b, want candidate }{
		{old, later, later}, {linkOld, linkLater, linkLater}, {linkLater, old, old}, {linkOld, later, later},
	} {
		for _, order := range [][]candidate{{test.a, test.b}, {test.b, test.a}} {
			found := map[string]candidate{}
			for _, c := range order {
				found = prefer(found, c)
			}
			if diff := cmp.Diff(map[string]candidate{"k": test.want}, found, cmp.AllowUnexported(candidate{})); diff != "" {
				t.Errorf("%+v:\n%s", order, diff)
			}
		}
	}
}
