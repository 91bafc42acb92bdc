package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInotifyInstancesAreRaisedAndNeverLowered(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]int{"128\n": inotifyInstances, "1024\n": inotifyInstances, "8192\n": 8192} {
		file := filepath.Join(t.TempDir(), "max_user_instances")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := raiseInotifyInstances(file); err != nil {
			t.Fatal(err)
		}
		if got, err := readInotifyInstances(file); err != nil || got != want {
			t.Errorf("after %q the limit is %d, %v; want %d", before, got, err, want)
		}
	}
}

func TestUnreadableInotifyLimit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "max_user_instances")
	if err := raiseInotifyInstances(file); err == nil {
		t.Error("a missing setting was accepted")
	}
	if err := os.WriteFile(file, []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := raiseInotifyInstances(file); err == nil {
		t.Error("a setting that is no number was accepted")
	}
}
