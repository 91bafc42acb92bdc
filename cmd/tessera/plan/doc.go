// Package plan implements the verb plan: which nodes change their driver, in which order, and how many pods lose their GPUs. The installer writes
// the plan into the status of its objects; with files, the package computes it with the installer's code.
package plan
