package gpunode

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
)

// Outcome is what became of a reset. It is kept until its remedy is gone and a while longer, so that a GPU is reset once for an ID, whoever
// asks again: an agent that was started anew, or another one, or a GPUNode that was deleted and restored.
type Outcome struct {
	// ID is the remedy's.
	ID string `json:"id"`
	// State is Reset or Failed, Message says what failed.
	State   v1alpha1.RemedyState `json:"state"`
	Message string               `json:"message,omitempty"`
	// GPUs are those that were reset, by name, At is when; absent of a reset that failed, and in files of older agents.
	GPUs []string  `json:"gpus,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// outcome returns what became of the reset for the ID, nil while that is not known. One that cannot be read is not known.
func (g *Gate) outcome(id string) (*Outcome, error) {
	text, err := os.ReadFile(g.outcomePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what became of the reset %s: %w", id, err)
	}
	var o Outcome
	if err := json.Unmarshal(text, &o); err != nil || o.ID != id {
		return nil, nil //nolint:nilerr // a file of nobody's: the reset is made again
	}
	return &o, nil
}

// conclude keeps what became of a reset, durably. It is called by whoever made it, with the locks of its GPUs held, also when it does not
// lead any more.
func (g *Gate) conclude(o Outcome) error {
	text, err := json.Marshal(o)
	if err == nil {
		err = atomicfile.Write(g.outcomePath(o.ID), text, onDisk())
	}
	if err != nil {
		return fmt.Errorf("keep what became of the reset %s: %w", o.ID, err)
	}
	return nil
}

// keepOutcome is how long an outcome is kept after its hold ended.
const keepOutcome = time.Hour

// tidy forgets what became of resets for other remedies than the holds', a while after these ended. Before are the holds until now.
func (g *Gate) tidy(before, holds []Hold) error {
	now := time.Now()
	var current []string
	for _, h := range slices.Concat(before, holds) {
		current = append(current, filepath.Base(g.outcomePath(h.ID)))
	}
	entries, err := os.ReadDir(g.path(resetsDir))
	for _, entry := range entries {
		path := filepath.Join(g.path(resetsDir), entry.Name())
		var late error
		if slices.Contains(current, entry.Name()) {
			late = os.Chtimes(path, now, now)
		} else if info, gone := entry.Info(); gone == nil && now.Sub(info.ModTime()) > keepOutcome {
			late = os.Remove(path)
		}
		if !errors.Is(late, fs.ErrNotExist) {
			err = errors.Join(err, late)
		}
	}
	if err != nil {
		return fmt.Errorf("forget resets of before: %w", err)
	}
	return nil
}

// outcomePath is where the outcome for the ID is kept: IDs come from the API server and may be anything.
func (g *Gate) outcomePath(id string) string {
	return filepath.Join(g.path(resetsDir), fmt.Sprintf("%x.json", sha256.Sum256([]byte(id))))
}
