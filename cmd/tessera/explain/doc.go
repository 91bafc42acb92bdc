// Package explain is the verb that says why a pod is on its node, or on none: it runs the scheduler's own
// code, with our plugin, over what the API server has now, and writes nothing.
package explain
