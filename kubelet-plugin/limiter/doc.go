// Package limiter limits the GPU memory of containers. A container whose CDI devices need it has the hook hook.LimitMemory, which sends the container's control
// group and its devices to the socket of this package before the container's first process runs. The limits follow from the records of the claims: nothing in
// an image or a pod has an influence on them.
package limiter
