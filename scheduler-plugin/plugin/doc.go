// Package plugin is the scheduler plugin TesseraDynamicResources: kube-scheduler's own
// DynamicResources, led to the node and the devices that leave the most for the pods to come.
package plugin
