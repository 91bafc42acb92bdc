package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// ForTest starts a cluster with start, which is Up or Bare, in the lab's folder of this name. It is removed at the end of the test, unless TESSERA_KEEP_LAB is
// set.
func ForTest(t *testing.T, name string, config Config, start func(context.Context, Config) (*Cluster, error)) *Cluster {
	t.Helper()
	config.Folder, config.Progress = filepath.Join(lab.Base, name), t.Output()
	if err := lab.Down(t.Context(), config.Folder); err != nil {
		t.Fatal("remove the lab of an earlier run: ", err)
	}
	if os.Getenv("TESSERA_KEEP_LAB") == "" {
		t.Cleanup(func() {
			if err := lab.Down(context.WithoutCancel(t.Context()), config.Folder); err != nil {
				t.Error(err)
			}
		})
	}
	c, err := start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
