// Package check is the verb that reads manifests before they reach a cluster: claims, templates and
// DeviceClasses with parameters for GPUs, and NodeConfigs. It judges with the code that the node agent
// judges with, api/params and api/v1alpha1, and needs no cluster.
package check
