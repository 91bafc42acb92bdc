// Package upgrade implements the verb upgrade, about rollouts of drivers. plan shows which nodes change their driver, in which order, and how many pods
// lose their GPUs: the installer writes the plan into the status of its objects; with files, the package computes it with the installer's code. The other
// verbs change the annotations and fields by which administrators control the installer.
package upgrade
