//go:build tools

// Package etcd pins the version of etcd that the lab builds and runs.
package etcd

import _ "go.etcd.io/etcd/server/v3"
