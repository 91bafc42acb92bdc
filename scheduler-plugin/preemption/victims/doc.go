// Package victims chooses who gives way when a demand of higher priority fits on a node only without
// them: as few and as unimportant holders as possible, and of several ways the one that leaves the most
// for the pods to come. It is pure; the caller evicts pods and keeps nominations.
package victims
