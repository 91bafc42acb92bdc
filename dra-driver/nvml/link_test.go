package nvml

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
)

// cabling returns NVML's view of the machine's links: addresses, active links, relations on the bus. Links that end at a
// switch lead to an address that is not a GPU's.
func cabling(m catalog.Machine) ([]string, []activeLink, map[pair]gpu.Link) {
	var addresses []string
	var wires []activeLink
	bus := map[pair]gpu.Link{}
	for a, slot := range m.GPUs {
		addresses = append(addresses, slot.PCI)
		most := 0
		for b, other := range m.GPUs {
			if a < b {
				bus[pair{a, b}] = m.PCIeLink(a, b)
			}
			most = max(most, m.NVLinkCount(a, b))
			for range m.NVLinkCount(a, b) {
				if !m.NVSwitch {
					wires = append(wires, activeLink{a, other.PCI})
				}
			}
		}
		if m.NVSwitch {
			for range most {
				wires = append(wires, activeLink{a, "0000:f7:00.0"})
			}
		}
	}
	return addresses, wires, bus
}

func TestLinkMatrix(t *testing.T) {
	machines, err := catalog.Machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range machines {
		got := linkMatrix(cabling(m))
		for i, g := range gputest.Node(t, m.Name).GPUs {
			if diff := cmp.Diff(g.Links, got[i]); diff != "" {
				t.Errorf("%s: links of GPU %d (-want +got):\n%s", m.Name, i, diff)
			}
		}
	}
}

func TestLinkMatrixWithFailures(t *testing.T) {
	addresses := []string{"0000:01:00.0", "0000:02:00.0", ""}
	bus := map[pair]gpu.Link{{0, 1}: gpu.LinkNode}
	wires := []activeLink{
		{0, "0000:f7:00.0"}, {0, ""}, {0, "0000:00:00.0"}, {0, "0000:f7:00.0"},
		{1, "0000:f7:00.0"}, {1, "0000:f7:00.0"}, {1, "0000:f7:00.0"}, // one of four is down
	}
	want := [][]gpu.Link{
		{gpu.LinkSelf, gpu.NVLinks(3), gpu.LinkUnknown},
		{gpu.NVLinks(3), gpu.LinkSelf, gpu.LinkUnknown},
		{gpu.LinkUnknown, gpu.LinkUnknown, gpu.LinkSelf},
	}
	if diff := cmp.Diff(want, linkMatrix(addresses, wires, bus)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if got := linkMatrix(addresses, nil, bus)[1][0]; got != gpu.LinkNode {
		t.Errorf("all links down: got %v, want the state of the bus", got)
	}
}
