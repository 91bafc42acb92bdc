package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// StockScheduler is the profile in which the lab's scheduler is as Kubernetes ships it: in the same process,
// hence with the same knowledge of what is taken, so that both can be compared.
const StockScheduler = "stock-scheduler"

// schedulerConfig is the configuration of a scheduler in the place of the stock one, as deployments/ has it,
// with the profile to compare with.
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
