package limiter

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// resizable is a node on which two containers of the claim b run, one of them with a share of claim a too. b can have up to 16 GiB.
func resizable(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	b := n.records["b"]
	b.Wanted[0].Settings.MemoryLimitBytes = 16 * gib
	b.Wanted[0].Request = "small"
	n.group("both", "misc")
	for _, r := range []hook.LimitRequest{
		{Group: "/limited", Devices: []hook.LimitedDevice{device("b", 0)}, Pod: "p", Container: "c"},
		{Group: "/both", Devices: []hook.LimitedDevice{device("a", 0), device("b", 0)}},
	} {
		if err := n.limit(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	n.limits, n.used = nil, map[string]uint64{"both": 0}
	return n
}

func (n *node) sorted() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(n.limits)))
}

// A changed limit is that of each running container and of those that start later, in sums with the shares of other claims.
func TestResize(t *testing.T) {
	for bytes, want := range map[uint64][]string{
		16 * gib: {"both gpu-0 17", "limited gpu-0 16"},
		3 * gib:  {"both gpu-0 4", "limited gpu-0 3"},
	} {
		n := resizable(t)
		got, err := n.Resize(t.Context(), Resize{Claim: "b", Bytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Resized{Request: "small", BeforeBytes: 4 * gib, Containers: 2, Exceeded: got.Exceeded}, got); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, n.sorted()); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
		if len(n.resized) != 1 || !strings.HasPrefix(n.resized[0], "b: each container can allocate "+quantity(bytes)) {
			t.Errorf("reported %q", n.resized)
		}
		n.limits = nil
		n.group("later", "misc")
		if err := n.limit(t.Context(), hook.LimitRequest{Group: "/later", Devices: []hook.LimitedDevice{device("b", 0)}}); err != nil {
			t.Fatal(err)
		}
		if n.limits[0] != strings.Replace(want[1], "limited", "later", 1) {
			t.Errorf("a later container: %q", n.limits)
		}
	}
}

// The answer names each GPU whose claims have higher limits together than what there is.
func TestResizeExceeds(t *testing.T) {
	n := resizable(t)
	got, err := n.Resize(t.Context(), Resize{Claim: "b", Bytes: 16 * gib})
	want := []Exceeded{{GPU: "gpu-0", LimitBytes: 17 * gib, ShareableBytes: 12 * gib}}
	if diff := cmp.Diff(want, got.Exceeded); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err = n.Resize(t.Context(), Resize{Claim: "b", Bytes: 11 * gib}); err != nil || got.Exceeded != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// What is refused changes neither a limit nor the record, or restores both.
func TestResizeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		request Resize
		prepare func(n *node)
		want    string
	}{
		"unknown claim":     {Resize{Claim: "c", Bytes: gib}, nil, "not prepared"},
		"above memoryLimit": {Resize{Claim: "b", Bytes: 16*gib + 1}, nil, "must be at most 16Gi"},
		"without memoryLimit": {Resize{Claim: "b", Bytes: 5 * gib}, func(n *node) {
			n.records["b"].Wanted[0].Settings.MemoryLimitBytes = 0
		}, "must be at most 4Gi"},
		"too low":             {Resize{Claim: "b", Bytes: 1 << 19}, nil, "at least 1Mi"},
		"below what is used":  {Resize{Claim: "b", Bytes: 2 * gib}, nil, `container "c" of pod "p" has allocated 3Gi of gpu-0`},
		"another request":     {Resize{Claim: "b", Request: "large", Bytes: gib}, nil, `no shares for a request "large": its requests with shares are small`},
		"one of two requests": {Resize{Claim: "b", Bytes: 4 * gib}, func(n *node) { n.add("b", "large", share("gpu-1", gib)) }, "name one of small, large"},
		"no shares": {Resize{Claim: "b", Bytes: gib}, func(n *node) {
			n.records["b"] = record("b", prepare.StatePrepared, whole("gpu-0"))
		}, "it has no shares"},
		"not limited": {Resize{Claim: "b", Bytes: gib}, func(n *node) { n.records["b"].Wanted[0].Use.Shape = gpu.MPS }, "memoryEnforced is none"},
		"raised, and refused by the driver": {Resize{Claim: "b", Bytes: 8 * gib}, func(n *node) {
			n.set = func(group string) error { return n.once("both", group) }
		}, "refused once"},
		"lowered, and refused by the driver": {Resize{Claim: "b", Bytes: 3 * gib}, func(n *node) {
			n.set = func(group string) error { return n.once("both", group) }
		}, "refused once"},
	} {
		t.Run(name, func(t *testing.T) {
			n := resizable(t)
			if test.prepare != nil {
				test.prepare(n)
			}
			before := n.records["b"]
			_, err := n.Resize(t.Context(), test.request)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, n.records["b"]); diff != "" || len(n.resized) > 0 {
				t.Errorf("reported %q; record (-want +got):\n%s", n.resized, diff)
			}
			last := map[string]string{}
			for _, text := range n.limits {
				group, limit, _ := strings.Cut(text, " ")
				last[group] = limit
			}
			for group, want := range map[string]string{"limited": "gpu-0 4", "both": "gpu-0 5"} {
				if got := last[group]; got != "" && got != want {
					t.Errorf("limit of %s: %s, want %s", group, got, want)
				}
			}
		})
	}
}

// add adds a device to the record.
func (n *node) add(uid, request string, w prepare.Wanted) {
	w.Request = request
	r := n.records[uid]
	r.Wanted = append(slices.Clone(r.Wanted), w)
	n.records[uid] = r
}

// once is the error of the first limit of the group.
func (n *node) once(group, set string) error {
	if set != group {
		return nil
	}
	n.set = nil
	return errors.New("refused once")
}

// An agent that is killed after it has recorded a higher limit, or before it has recorded a lower one, sets what the record has when it starts.
func TestResizeIsContinued(t *testing.T) {
	n := resizable(t)
	killed := errors.New("killed")
	n.set = func(string) error { panic(killed) }
	func() {
		defer func() {
			if r := recover(); r != killed { //nolint:errorlint // it is the value
				t.Errorf("recovered %v", r)
			}
		}()
		n.change(t.Context(), n.records["b"], resizedRecord(n.records["b"], 8*gib)) //nolint:errcheck // it panics
	}()
	n.set = nil
	New(n.Config).restore(t.Context())
	if diff := cmp.Diff([]string{"both gpu-0 9", "limited gpu-0 8"}, n.sorted()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

func resizedRecord(r prepare.Record, bytes uint64) prepare.Record {
	r.Wanted = slices.Clone(r.Wanted)
	r.Wanted[0].MemoryLimit = bytes
	return r
}

// A container that starts while the limit of its claim is lowered gets the new limit, though it has read the record before.
func TestResizeWhileAContainerStarts(t *testing.T) {
	n := resizable(t)
	n.group("late", "misc")
	n.used["late"], n.used["limited"] = 0, 0
	first := true
	n.set = func(group string) error {
		if group == "late" && first {
			first = false
			n.mutex.Lock()
			n.records["b"] = resizedRecord(n.records["b"], 2*gib) // the other agent records it, and has not seen the container
			n.mutex.Unlock()
		}
		return nil
	}
	if err := n.limit(t.Context(), hook.LimitRequest{Group: "/late", Devices: []hook.LimitedDevice{device("b", 0)}}); err != nil {
		t.Fatal(err)
	}
	if got := n.limits[len(n.limits)-1]; got != "late gpu-0 2" {
		t.Errorf("limits %q", n.limits)
	}
}
