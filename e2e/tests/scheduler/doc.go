// Package scheduler tests what must never happen in the scheduler with our plugin: a device held twice, a
// device that stays assumed, a pod that is dropped. Its tests run the real scheduler, in this process or
// as separate processes that are killed at every place, on a real API server with the real controller of
// claims and without nodes.
package scheduler
