package maintenance

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
)

// Outcome is the result of a reset. It is stored until some time after its remedy is gone, so that a GPU is reset once for an ID, even if
// the agent restarts, another agent takes over, or the GPUNode is deleted and restored.
type Outcome struct {
	// ID is that of the remedy.
	ID string `json:"id"`
	// State is Reset or Failed, Message the error of a failed reset.
	State   v1alpha1.AgentRemediationState `json:"state"`
	Message string                         `json:"message,omitempty"`
	// GPUs are those that were reset, by name, At is when. Both are absent after a failed reset and in files of older agents.
	GPUs []string  `json:"gpus,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// loadOutcome returns the outcome of the reset for the ID, nil if there is none. A file that cannot be decoded counts as none.
func (g *Gate) loadOutcome(id string) (*Outcome, error) {
	text, err := os.ReadFile(g.outcomePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the outcome of reset %s: %w", id, err)
	}
	var o Outcome
	if err := json.Unmarshal(text, &o); err != nil || o.ID != id {
		return nil, nil //nolint:nilerr // not an outcome of this ID: the reset is repeated
	}
	return &o, nil
}

// saveOutcome stores the outcome durably. The caller holds the locks of the GPUs that it has reset; it may have stopped leading since.
func (g *Gate) saveOutcome(o Outcome) error {
	text, err := json.Marshal(o)
	if err == nil {
		err = atomicfile.Write(g.outcomePath(o.ID), text, g.fileOptions())
	}
	if err != nil {
		return fmt.Errorf("store the outcome of reset %s: %w", o.ID, err)
	}
	return nil
}

// outcomeRetention is how long an outcome is stored after its hold has ended.
const outcomeRetention = time.Hour

// pruneOutcomes removes outcomes whose holds ended longer than outcomeRetention ago. The time of a file is when its hold was last seen:
// those of the previous and the current holds are touched.
func (g *Gate) pruneOutcomes(previous, holds []Hold) error {
	now := time.Now()
	var current []string
	for _, h := range slices.Concat(previous, holds) {
		current = append(current, filepath.Base(g.outcomePath(h.ID)))
	}
	entries, err := os.ReadDir(g.path(resetsDir))
	for _, entry := range entries {
		path := filepath.Join(g.path(resetsDir), entry.Name())
		var failed error
		if slices.Contains(current, entry.Name()) {
			failed = disk.Or(g.files).Chtimes(path, now, now)
		} else if info, gone := entry.Info(); gone == nil && now.Sub(info.ModTime()) > outcomeRetention {
			failed = disk.Or(g.files).Remove(path)
		}
		if !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return fmt.Errorf("remove outcomes of earlier resets: %w", err)
	}
	return nil
}

// outcomePath returns the file of the outcome for the ID. IDs come from the API server and may contain any text, so they are hashed.
func (g *Gate) outcomePath(id string) string {
	return filepath.Join(g.path(resetsDir), fmt.Sprintf("%x.json", sha256.Sum256([]byte(id))))
}
