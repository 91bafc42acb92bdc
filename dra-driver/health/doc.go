// Package health monitors the GPUs of the node: it receives the driver's events, checks each GPU once a second, and determines faults by the
// rules of api/gpu. Faults are saved before they are reported, so that they survive the process.
package health
