// Package nvml is Tessera's one door to the hardware: it reads the GPUs of the node through the
// driver's NVML, creates and destroys MIG devices and switches the MIG mode.
//
// A Session is one connection to the driver that lives as long as the agent and can be reopened when
// the driver changes. Handles never leave it. What NVML answers is turned into the model of api/gpu
// by pure functions; what NVML refuses becomes an error that names the call, NVML's own words and,
// where a caller decides on it, a sentinel of api/gpu.
package nvml
