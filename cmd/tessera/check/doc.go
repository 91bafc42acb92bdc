// Package check implements the verb check: it validates the GPU parameters of ResourceClaims, ResourceClaimTemplates and DeviceClasses, and
// NodeConfigs, with the code of the node agent (api/params and api/v1alpha1). It needs no cluster.
package check
