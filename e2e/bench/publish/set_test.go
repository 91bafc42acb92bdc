package main

import (
	"strings"
	"testing"
)

// NVIDIA's own set was measured with 249 KiB; our version of it must be about that to be a fair
// peer.
func TestNVIDIAsSet(t *testing.T) {
	objects, err := nvidias().objects(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 9 || len(objects[0].Spec.SharedCounters) != 8 || len(objects[8].Spec.Devices) != 26 {
		t.Fatalf("%d slices, want one of 8 counter sets and 8 of 26 devices", len(objects))
	}
	var names []string
	for _, d := range objects[8].Spec.Devices {
		if len(d.Attributes)+len(d.Capacity) > 32 {
			t.Errorf("%s has %d attributes and capacities", d.Name, len(d.Attributes)+len(d.Capacity))
		}
		names = append(names, d.Name)
	}
	for _, want := range []string{"gpu-7", "gpu-7-mig-1g10gb-19-6", "gpu-7-mig-1g10gb-me-20-0", "gpu-7-mig-7g80gb-0-0"} {
		if !strings.Contains(strings.Join(names, " ")+" ", want+" ") {
			t.Errorf("no device %s in %q", want, names)
		}
	}
	size, err := nvidias().size()
	if err != nil {
		t.Fatal(err)
	}
	if size.json < 0.9*249 || size.json > 1.1*249 {
		t.Errorf("%.1f KiB, want about 249", size.json)
	}
}

func TestAllocated(t *testing.T) {
	profile := "heap profile: 1: 2 [3: 4] @ heap/1048576\n# runtime.MemStats\n# Alloc = 5\n# HeapAlloc = 123456\n# HeapSys = 7\n"
	if got, err := allocated(profile); err != nil || got != 123456 {
		t.Errorf("got %d, %v", got, err)
	}
	if got, err := allocated("# HeapSys = 7\n"); err == nil {
		t.Errorf("a profile without HeapAlloc: got %d", got)
	}
}
