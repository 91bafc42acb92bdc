package machine

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIdentityTellsProcessesApart(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.Alive() {
		t.Error("this very process is not alive")
	}
	for name, other := range map[string]Identity{
		"started later":   {PID: self.PID, Start: self.Start + 1, BootID: self.BootID},
		"of another boot": {PID: self.PID, Start: self.Start, BootID: "0"},
	} {
		if other.Alive() {
			t.Errorf("a process %s counts as this one", name)
		}
	}
}

func TestEndSparesAProcessThatTookTheNumber(t *testing.T) {
	cmd, ended := sleeper(t)
	identity, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stale := identity
	stale.Start--
	if err := stale.end(t.Context(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if !identity.Alive() {
		t.Fatal("the process was ended though only its number matched")
	}
	if err := identity.end(t.Context(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process ended by itself, not by the signal")
	}
	if err := identity.end(t.Context(), unix.SIGKILL); err != nil {
		t.Errorf("ending twice: %v", err)
	}
}

// sleeper starts an idle process and returns a channel that receives its exit.
func sleeper(t *testing.T) (*exec.Cmd, <-chan error) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, ended
}

func TestStartTime(t *testing.T) {
	tail := " S 1 2 2 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for _, name := range []string{"(sh)", "(a b)", "(odd) S 9 9)"} {
		got, err := startTime("12 " + name + tail)
		if err != nil || got != 4711 {
			t.Errorf("%s: got %d, %v", name, got, err)
		}
	}
	for _, bad := range []string{"12 (sh) S 1", "12 (sh) Z" + tail[2:]} {
		if _, err := startTime(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
