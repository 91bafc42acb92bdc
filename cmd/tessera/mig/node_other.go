//go:build !linux || !cgo

package mig

import (
	"context"
	"errors"
)

// open refuses: the driver's library can be called on Linux only, and by a program built with cgo.
func open(context.Context, Host) (Node, error) {
	return nil, errors.New("this program was built without access to NVIDIA's driver: run the one for Linux, built with cgo, on a GPU node")
}
