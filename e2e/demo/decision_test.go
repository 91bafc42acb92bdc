package main

import (
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/tests/predict"
)

func TestPrintDecision(t *testing.T) {
	d := decision{
		request: "1 × mig-1g", nodes: []string{"node1", "node2"}, node: "node1", devices: []string{"gpu-3-mig-1g"},
		predicted: map[string]predict.Answer{
			"node1": {Devices: []string{"gpu-3-mig-1g"}, Text: "on a GPU in use"}, "node2": {Text: "slice: needs a 1g"},
		},
	}
	var text strings.Builder
	d.print(&text)
	for _, want := range []string{"node1  on a GPU in use", "node2  slice: needs a 1g", "chosen  node1: gpu-3-mig-1g, as predicted"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	d.devices = []string{"gpu-4-mig-1g"}
	text.Reset()
	d.print(&text)
	if !strings.Contains(text.String(), "not as predicted") {
		t.Errorf("another device is printed as predicted:\n%s", text.String())
	}
}
