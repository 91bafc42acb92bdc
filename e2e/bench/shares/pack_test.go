package main

import "testing"

// TestReplay places pods of which each can have half of a GPU.
func TestReplay(t *testing.T) {
	half := func(used, arrives, ends float64) sharer {
		return sharer{limit: .5, used: used, arrives: arrives, grows: (arrives + ends) / 2, ends: ends}
	}
	for name, test := range map[string]struct {
		pods          []sharer
		assumed       float64
		peak, evicted int
	}{
		"what they can have":     {[]sharer{half(.5, 0, 10), half(.5, 1, 10), half(.5, 2, 10)}, 1, 2, 0},
		"half of it, and less":   {[]sharer{half(.2, 0, 10), half(.2, 1, 10), half(.2, 2, 10)}, .5, 1, 0},
		"half of it, all in use": {[]sharer{half(.5, 0, 10), half(.5, 1, 10), half(.5, 2, 10)}, .5, 1, 1},
		"one after the other":    {[]sharer{half(.5, 0, 1), half(.5, 2, 3), half(.5, 4, 5)}, 1, 1, 0},
	} {
		if peak, evicted := replay(test.pods, test.assumed); peak != test.peak || evicted != test.evicted {
			t.Errorf("%s: %d GPUs, %d evicted, want %d, %d", name, peak, evicted, test.peak, test.evicted)
		}
	}
}
