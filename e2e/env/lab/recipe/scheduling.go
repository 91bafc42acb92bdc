package recipe

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Scheduling is a shipped configuration of the scheduler as it runs in a lab: with the lab's kubeconfig,
// with one more profile that has kube-scheduler's own plugins only, and without leader election, which the
// service's flag switches off: a lab has one scheduler, and one that was killed need not wait for its lease.
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
