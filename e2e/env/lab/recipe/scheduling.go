package recipe

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Scheduling adapts a shipped configuration of the scheduler to a lab: it sets the lab's kubeconfig, adds a profile
// with kube-scheduler's own plugins only, and disables leader election, which the service's flag also disables: a lab
// has one scheduler, and a restart after a kill must not wait for the lease.
func Scheduling(shipped []byte, stockProfile string) ([]byte, error) {
	var config map[string]any
	if err := yaml.UnmarshalStrict(shipped, &config); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	profiles, also := config["profiles"].([]any)
	if !ok || !also {
		return nil, errors.New("read the scheduler's configuration: it has no clientConnection or no profiles")
	}
	connection["kubeconfig"] = KubeconfigFile(Scheduler)
	config["profiles"] = append(profiles, map[string]any{"schedulerName": stockProfile})
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write the scheduler's configuration: %w", err)
	}
	return text, nil
}
