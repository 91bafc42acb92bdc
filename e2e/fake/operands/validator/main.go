// Command validator verifies that every GPU of its container computes: it runs the probe's vectorAdd on each, and ends with the line "Test PASSED" when
// all did. A GPU in MIG mode computes in its MIG devices only; it is named and skipped.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// probe runs inside the container; see e2e/env/probe.
const probe = "/usr/bin/probe"

func main() {
	if err := run(); err != nil {
		fmt.Println("Test FAILED")
		fmt.Fprintln(os.Stderr, "validator:", err)
		os.Exit(1)
	}
	fmt.Println("Test PASSED")
}

// device is a GPU or MIG device as the probe reports it.
type device struct {
	UUID      string   `json:"uuid"`
	Name      string   `json:"name"`
	MIG       bool     `json:"mig"`
	Instances []device `json:"instances"`
}

func run() error {
	output, err := exec.Command(probe, "devices").Output()
	if err != nil {
		return fmt.Errorf("list the GPUs: %w", err)
	}
	var seen struct {
		GPUs []device `json:"gpus"`
	}
	if err := json.Unmarshal(output, &seen); err != nil {
		return fmt.Errorf("list the GPUs: %w", err)
	}
	if len(seen.GPUs) == 0 {
		return errors.New("the container sees no GPU")
	}
	for _, gpu := range seen.GPUs {
		if err := validate(gpu); err != nil {
			return err
		}
	}
	return nil
}

func validate(gpu device) error {
	targets := []device{gpu}
	if gpu.MIG {
		targets = gpu.Instances
		fmt.Printf("%s (%s) is in MIG mode with %d MIG devices here\n", gpu.Name, gpu.UUID, len(targets))
	}
	for _, target := range targets {
		command := exec.Command(probe, "vectoradd")
		command.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+target.UUID)
		output, err := command.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "Test PASSED") {
			return fmt.Errorf("vectorAdd on %s (%s): %w\n%s", target.Name, target.UUID, errors.Join(err, errors.New("no Test PASSED")), output)
		}
		fmt.Printf("vectorAdd on %s (%s): passed\n", target.Name, target.UUID)
	}
	return nil
}
