//go:build race

package agent

// raced says that the tests look for data races: then the agent does, too.
const raced = true
