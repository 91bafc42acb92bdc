// Package podgroup places the pods of one group in one NVLink clique.
//
// Tracker records the nodes of the pods of each group. PreferredNodes chooses a clique for the next pod of a group.
package podgroup
