package main

// mix is a demand for MIG profiles: the share of arrivals by profile, in the order 1g, 1g with double
// memory, 2g, 3g, 4g, 7g.
type mix struct {
	name   string
	shares []float64
	// goal is the acceptance that ours should reach with 100 GPUs at a load of .95, inTree and bound the
	// reference's figures there; behind is the goal for the points between ours and the bound with
	// 1,000.
	goal, inTree, bound, behind float64
}

// mixes are the mixes of the designs.
func mixes() []mix {
	return []mix{
		{"uniform", []float64{1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6, 1. / 6}, .940, .900, .964, .3},
		{"skew-small", []float64{.30, .25, .20, .10, .10, .05}, .950, .920, .974, .3},
		{"skew-big", []float64{.05, .10, .10, .20, .25, .30}, .934, .885, .958, .3},
		{"bimodal", []float64{.30, .15, .05, .05, .15, .30}, .925, .880, .956, .6},
		{"no-1gd", []float64{.35, 0, .25, .20, .10, .10}, .924, .902, .959, 1.5},
	}
}
