package cluster

import (
	"testing"

	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
)

func TestParseHardware(t *testing.T) {
	tests := map[string]struct {
		text string
		want fakegpu.Spec
		bad  bool
	}{
		"a machine":   {text: "h100x8", want: fakegpu.Spec{Machine: "h100x8"}},
		"bare":        {text: "h100x8,bare", want: fakegpu.Spec{Machine: "h100x8", Bare: true}},
		"with kernel": {text: "t4x1,bare,kernel=6.8.0-80-generic", want: fakegpu.Spec{Machine: "t4x1", Bare: true, Kernel: "6.8.0-80-generic"}},
		"with driver": {text: "t4x1,driver=615.71.09", want: fakegpu.Spec{Machine: "t4x1", DriverVersion: "615.71.09"}},
		"misspelled":  {text: "h100x8,bear", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseHardware(test.text)
			if (err != nil) != test.bad || err == nil && got != test.want {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}
