package plugin

import (
	"testing"

	"github.com/tessera-gpu/tessera/scheduler-plugin/fit"
)

// Choices that the in-tree allocator reproduces at once have no limit in time, however slow the machine is; those with many ways to assign the devices have one.
func TestChoicesThatAreReproducedSoon(t *testing.T) {
	picks := func(requests, devices, alternative int) fit.Choice {
		var choice fit.Choice
		for range requests {
			choice.Picks = append(choice.Picks, fit.Pick{Alternative: alternative, Devices: make([]int, devices)})
		}
		return choice
	}
	for name, test := range map[string]struct {
		choice fit.Choice
		want   bool
	}{
		"one device":                      {picks(1, 1, 0), true},
		"all GPUs of a large node":        {picks(1, 64, 0), true},
		"the last of 8 alternatives":      {picks(1, 1, 7), true},
		"three requests":                  {picks(3, 1, 0), true},
		"two requests of four devices":    {picks(2, 4, 0), true},
		"nothing":                         {picks(2, 0, 0), true},
		"eight requests":                  {picks(8, 1, 0), false},
		"four requests of alternatives":   {picks(4, 1, 7), false},
		"32 requests of the last of 8":    {picks(32, 1, 7), false},
		"two requests of sixteen devices": {picks(2, 16, 0), false},
		"alternatives without devices":    {picks(32, 0, 1), false},
		"32 requests of 32 devices":       {picks(32, 32, 7), false},
	} {
		if got := isReproducedSoon(test.choice); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
