// Package survey reads what a host is: kernel, operating system, firmware, modules, GPUs and drivers. It changes nothing and needs no right but
// to read; discovery calls it every few minutes, the verbs once.
package survey
