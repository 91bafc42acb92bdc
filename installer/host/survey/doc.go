// Package survey reads the state of a host: kernel, operating system, firmware, modules, GPUs and drivers. It changes nothing and needs only read
// access. Discovery calls it every few minutes, the verbs once.
package survey
