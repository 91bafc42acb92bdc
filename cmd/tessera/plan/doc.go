// Package plan is the verb that tells what the installer is about to do: which nodes change their driver, in which order, and how many pods
// that costs their GPUs. What it tells is what the installer writes into the status of its objects.
package plan
