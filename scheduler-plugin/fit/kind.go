package fit

import "github.com/tessera-gpu/tessera/api/gpu"

// Weights say what the cluster's future demands are expected to be. The zero value weighs every profile
// by its size.
type Weights struct {
	// Profiles are the shares of the demand by the names of MIG profiles; a profile that is not named
	// has the average of the others. What is named counts at least half of the average, so that nothing
	// is starved.
	Profiles map[string]float64
}

// Kind is a GPU model as it is offered: its geometry and the tables made of it. It is made once per
// geometry and shared.
type Kind struct {
	// Geometry is nil for a GPU without MIG.
	Geometry *gpu.Geometry
}

// NewKind returns the tables of the geometry.
func NewKind(g *gpu.Geometry, _ Weights) *Kind { return &Kind{Geometry: g} }
