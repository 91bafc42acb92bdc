// Package gputest provides the catalogue of package catalog to tests.
package gputest

import (
	"testing"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

// Node returns the machine as the node "node1". It fails the test if the catalogue does not have the machine.
func Node(tb testing.TB, machine string) gpu.Node {
	tb.Helper()
	m, err := catalog.FindMachine(machine)
	if err != nil {
		tb.Fatal(err)
	}
	node, err := m.Node("node1")
	if err != nil {
		tb.Fatal(err)
	}
	return node
}

// Geometry returns the geometry of the model; nil without MIG. It fails the test if the catalogue does not have the model.
func Geometry(tb testing.TB, model string) *gpu.Geometry {
	tb.Helper()
	m, err := catalog.FindModel(model)
	if err != nil {
		tb.Fatal(err)
	}
	geometry, err := m.Geometry()
	if err != nil {
		tb.Fatal(err)
	}
	return geometry
}
