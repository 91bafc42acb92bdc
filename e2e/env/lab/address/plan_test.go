package address

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChooseAvoidsTheHostsRoutes(t *testing.T) {
	tests := []struct {
		name  string
		taken []string
		want  string
	}{
		{"nothing taken", nil, "10.64.0.0/16"},
		{"another lab's bridge", []string{"10.64.0.0/24"}, "10.65.0.0/16"},
		{"a single address inside", []string{"10.64.200.7/32", "10.65.0.0/24"}, "10.66.0.0/16"},
		{"a network around all of 10/8", []string{"10.0.0.0/8"}, "172.18.0.0/16"},
		{"all of RFC 1918", []string{"10.0.0.0/8", "172.16.0.0/12"}, "100.64.0.0/16"},
		{"unrelated routes", []string{"192.0.2.0/24", "127.0.0.0/8"}, "10.64.0.0/16"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			plan, err := Choose(prefixes(test.taken...))
			if err != nil {
				t.Fatal(err)
			}
			if got := plan.Network.String(); got != test.want {
				t.Errorf("chose %s, want %s", got, test.want)
			}
		})
	}
}

func TestChooseFailsWhenNothingIsFree(t *testing.T) {
	_, err := Choose(prefixes("10.0.0.0/8", "172.16.0.0/12", "100.64.0.0/10", "198.18.0.0/15"))
	if !errors.Is(err, ErrNoneFree) {
		t.Errorf("got %v, want ErrNoneFree", err)
	}
}

func TestPartsOfAPlanAreDisjoint(t *testing.T) {
	plan, err := Choose(nil)
	if err != nil {
		t.Fatal(err)
	}
	parts := []netip.Prefix{plan.Nodes(), plan.Services()}
	seen := map[netip.Addr]bool{plan.Host(): true, plan.ControlPlane(): true}
	for i := range MaxNodes {
		parts = append(parts, plan.Pods(i))
		if node := plan.Node(i); seen[node] || !plan.Nodes().Contains(node) {
			t.Errorf("node %d has address %s: used twice or outside %s", i, node, plan.Nodes())
		}
		seen[plan.Node(i)] = true
	}
	for i, part := range parts {
		if !plan.Network.Overlaps(part) || part.Bits() <= plan.Network.Bits() {
			t.Errorf("%s is not inside %s", part, plan.Network)
		}
		if overlapsAny(part, parts[i+1:]) {
			t.Errorf("%s overlaps another part", part)
		}
	}
	if !plan.Services().Contains(plan.FirstService()) {
		t.Errorf("first service %s is outside %s", plan.FirstService(), plan.Services())
	}
}

func TestMACFollowsTheAddress(t *testing.T) {
	if got, want := MAC(netip.MustParseAddr("10.64.0.11")).String(), "02:00:0a:40:00:0b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTakenReadsRoutes(t *testing.T) {
	routes := `[{"dst":"default","gateway":"192.0.2.1"},{"dst":"192.0.2.0/24"},{"type":"local","dst":"127.0.0.1"},{"type":"broadcast","dst":"192.0.2.255"}]`
	got, err := Taken([]byte(routes))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.0/24", "127.0.0.1/32", "192.0.2.255/32"}
	var texts []string
	for _, prefix := range got {
		texts = append(texts, prefix.String())
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "{}", `[{"dst":"nonsense"}]`} {
		if _, err := Taken([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}
