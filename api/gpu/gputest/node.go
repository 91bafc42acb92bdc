package gputest

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// Node returns the node "node1" with the machine; it ends the test when the catalogue has none of
// that name.
func Node(tb testing.TB, machine string) gpu.Node {
	tb.Helper()
	m, err := FindMachine(machine)
	if err != nil {
		tb.Fatal(err)
	}
	node, err := m.Node("node1")
	if err != nil {
		tb.Fatal(err)
	}
	return node
}

// Geometry returns the geometry of the model, nil without MIG; it ends the test when the catalogue
// has no model of that name.
func Geometry(tb testing.TB, model string) *gpu.Geometry {
	tb.Helper()
	m, err := FindModel(model)
	if err != nil {
		tb.Fatal(err)
	}
	geometry, err := m.Geometry()
	if err != nil {
		tb.Fatal(err)
	}
	return geometry
}
