package main

import (
	"strings"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/tests/predict"
)

func TestDecisionSaysWhyAndWhatCameOfIt(t *testing.T) {
	d := decision{
		asked: "one slice", nodes: []string{"node1", "node2"}, node: "node1", devices: []string{"gpu-3-mig-1g"},
		said: map[string]predict.Answer{
			"node1": {Devices: []string{"gpu-3-mig-1g"}, Text: "on a GPU in use"}, "node2": {Text: "slice: needs a 1g"},
		},
	}
	var text strings.Builder
	d.print(&text)
	for _, want := range []string{"node1  on a GPU in use", "node2  slice: needs a 1g", "chosen  node1: gpu-3-mig-1g, as foreseen"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	d.devices = []string{"gpu-4-mig-1g"}
	text.Reset()
	d.print(&text)
	if !strings.Contains(text.String(), "not as foreseen") {
		t.Errorf("another device is told as foreseen:\n%s", text.String())
	}
}
