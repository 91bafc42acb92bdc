// Package history checks the limits of GPU memory over random histories of pods: claims that are prepared, resized and released, containers that start, execute
// programs, allocate memory and end, hooks that are killed, and agents that are killed at every step. The limiter is the agent's, with its sockets and files; the
// kernel and the driver are a model of what their sources do, with the controllers misc and dmem.
package history
