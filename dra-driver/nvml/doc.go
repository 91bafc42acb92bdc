// Package nvml is the only access to the hardware: it reads the GPUs of the node through the driver's NVML, creates and
// destroys MIG devices and sets the MIG mode.
//
// A Session is one connection to the driver that lives as long as the agent and is reopened when the driver changes.
// NVML handles never leave the package. Pure functions convert NVML's results into the model of api/gpu. A failed call
// becomes an error with the name of the call, NVML's error text and, where callers decide on it, a sentinel of api/gpu.
package nvml
