package prepare_test

import (
	"testing"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/checkpoint"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// openRecords opens the records as the agent does.
func openRecords(files disk.FileSystem, dir string, report func(path string, err error)) (prepare.Records, error) {
	return checkpoint.Open(files, dir, report)
}

// A call for a claim that meets a fault of the disk returns its cause, and succeeds when it is repeated, with nothing leaked. Unprepare succeeds on a
// full disk.
func TestClaimsWithDiskFaults(t *testing.T) {
	t.Parallel()
	prepare.TryDiskFaults(t, openRecords)
}

// A power failure loses no record and leaks nothing.
func TestClaimsSurvivePowerFailures(t *testing.T) {
	t.Parallel()
	prepare.TryPowerFailures(t, openRecords)
}
