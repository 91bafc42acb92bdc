package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// StockScheduler is the profile in which the lab's scheduler uses the plugins of kube-scheduler only. It runs in the
// same process and shares its caches, so that both profiles can be compared.
const StockScheduler = "stock-scheduler"

// schedulerConfig returns the configuration in deployments/ for a replacement of kube-scheduler, with the additional
// profile StockScheduler.
func schedulerConfig() (machine.File, error) {
	source, err := binaries.Source()
	if err != nil {
		return machine.File{}, err
	}
	text, err := os.ReadFile(filepath.Join(source, "deployments", "scheduler", "replace", "config.yaml"))
	if err != nil {
		return machine.File{}, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	text, err = recipe.Scheduling(text, StockScheduler)
	return machine.File{Path: recipe.SchedulerConfig, Content: text, Mode: 0o644}, err
}
