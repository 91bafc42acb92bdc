// Package health watches the health of the node's GPUs: it listens to the driver's events, looks at every GPU once a second, and has the rules
// of api/gpu judge what it finds. One goroutine owns all that is remembered; it is saved before it is told, so that what was told outlives
// the process.
package health
