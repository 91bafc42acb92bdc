//go:build !race

package agent

// raced reports whether the tests, and therefore the agent, use the race detector.
const raced = false
