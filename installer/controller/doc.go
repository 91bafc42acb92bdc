// Package controller observes the cluster, asks phase and rollout what to do, and has action do it. It decides nothing about a node or a rollout and
// remembers nothing that must outlive it: what must stands in GPUNodes.
//
// Two reconcilers share the work. The policy's makes the objects of the cluster, says which driver each node is to have, and grants it when the
// rollout says so. The node's brings one node to what it has been granted. Everything is read from caches but the pods of users, and those only
// while the GPUs of their node are taken out of service; nothing is written that stands already, so a cluster that is as it should be costs the
// leader's lease and nothing else.
package controller
