// Package arrivals generates the streams of demands that the placement benches replay: every policy gets
// the same demands at the same times, with the same lifetimes when they are served.
package arrivals
