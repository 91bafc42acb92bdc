package main

import (
	"errors"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/installer/controller"
	"github.com/tessera-gpu/tessera/internal/capability"
	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

// An API server that is too old is refused by the hook of the chart that applies the CRDs, and by the installer.
func TestOldServersAreRefused(t *testing.T) {
	old := &rest.Config{Host: capabilitytest.Serve(t, capabilitytest.Kubernetes134())}
	if _, err := capability.Read(old); !errors.Is(err, capability.ErrTooOld) {
		t.Errorf("capability.Read: %v, want ErrTooOld", err)
	}
	if err := controller.Run(t.Context(), controller.Config{Access: old, Namespace: "tessera-system"}); !errors.Is(err, capability.ErrTooOld) {
		t.Errorf("Run: %v, want ErrTooOld", err)
	}
	if _, err := capability.Read(&rest.Config{Host: capabilitytest.Serve(t, capabilitytest.Kubernetes136())}); err != nil {
		t.Errorf("Kubernetes 1.36: %v", err)
	}
}
