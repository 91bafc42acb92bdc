// Package prepare turns an allocated claim into usable devices and back.
//
// A pure function plans (claim, node, record → ordered steps); one executor performs the steps in
// that order, each able to see whether it is already done. The record is written before the first
// side effect and after the last, so that a crash at any point is finished or undone by the next
// call. The package owns the locks of GPUs and claims and declares the ports it needs; it knows
// neither NVML nor files of others nor Kubernetes.
package prepare
