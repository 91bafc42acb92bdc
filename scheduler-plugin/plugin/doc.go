// Package plugin is the scheduler plugin TesseraDynamicResources: its extension points, and what connects them to the
// packages that decide.
//
// It embeds kube-scheduler's plugin DynamicResources, which defines what an allocation is and writes it.
// TesseraDynamicResources chooses the node and the devices that leave the most for later pods.
package plugin
