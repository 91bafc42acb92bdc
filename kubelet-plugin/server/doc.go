// Package server answers kubelet: it turns the calls of the DRA protocol into calls of package
// prepare and back, and does nothing else.
//
// The helper k8s.io/dynamic-resource-allocation/kubeletplugin owns the sockets and the protocol. It
// publishes nothing here and takes no lock: prepare owns the locks, dra-driver/publish the slices.
package server
