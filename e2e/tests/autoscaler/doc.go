// Package autoscaler lets Karpenter's own allocator judge what `tessera template` prints. It is a module because Karpenter requires libraries of an older
// Kubernetes; therefore it reads the command's output, as a cloud provider would.
package autoscaler
