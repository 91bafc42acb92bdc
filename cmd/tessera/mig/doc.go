// Package mig is the verb mig: fixed MIG layouts for nodes whose administrator wants them, in the file
// format of mig-parted (github.com/NVIDIA/mig-parted), version v1.
//
// What a layout holds is outside of Dynamic Resource Allocation: the node's agent did not make it,
// withholds its memory slices and offers the rest. What claims hold is never touched.
package mig
