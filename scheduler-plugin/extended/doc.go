// Package extended handles extended resources that a DeviceClass backs (KEP-5004): resources such as
// example.com/gpu that a container requests and that a claim can serve.
//
// On a node where a device plugin offers the resource, no claim is needed; elsewhere the in-tree plugin creates one.
package extended
