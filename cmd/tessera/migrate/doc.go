// Package migrate implements the verb migrate, which converts the configuration of NVIDIA's GPU Operator to Tessera's objects with package
// installer/migrate. It needs no cluster.
package migrate
