// Package runc runs containers with the real runc, without a cluster: for what a CDI spec does to a container.
package runc
