// Package params reads the parameters that claims and DeviceClasses carry for Tessera's devices: the
// kinds GPUConfig and MIGConfig of gpu.tessera.dev/v1alpha1. Many entries, of classes and of the
// claim, become the Settings of one device (Resolve).
//
// The input is written by anybody who may create a claim, and the API server looks into none of it:
// decoding is strict, bounded in time, and never a panic. Normalizing and validating happen here and
// nowhere else.
package params
