package main

import (
	"errors"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/internal/capability"
	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

func TestAgentRefusesOldServers(t *testing.T) {
	for name, test := range map[string]struct {
		serves capabilitytest.Resources
		refuse bool
	}{"1.34": {capabilitytest.Kubernetes134(), true}, "1.36": {capabilitytest.Kubernetes136(), false}} {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: capabilitytest.Serve(t, test.serves)})
		if err != nil {
			t.Fatal(err)
		}
		if err := (clients{Interface: client}).refuseOldServer(t.Context()); errors.Is(err, capability.ErrTooOld) != test.refuse || !test.refuse && err != nil {
			t.Errorf("%s: %v; want a refusal %t", name, err, test.refuse)
		}
	}
}
