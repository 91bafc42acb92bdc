// Package scheduler holds the scheduler with our plugin to what must never happen: a device held twice, a
// device that stays assumed, a pod that is forgotten. Its tests run the real scheduler, in this process or
// as processes of their own that are killed at every place, on a real API server with the real controller
// of claims and without nodes.
package scheduler
