// Package arrivals makes the streams of demands that the placement benches replay: every policy meets the
// same demands at the same times, which stay for the same time when they are served.
package arrivals
