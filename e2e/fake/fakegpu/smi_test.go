package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// updateVariable, set to any value, makes the test rewrite the transcripts.
const updateVariable = "FAKEGPU_TEST_UPDATE"

// TestSMI plays the transcripts in testdata: the first line names the machine, every line that
// begins with $ is a command, and what follows is its output and, unless 0, its exit status.
func TestSMI(t *testing.T) {
	files, err := filepath.Glob("testdata/smi-*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			must(t, err)
			machine, script, _ := strings.Cut(string(data), "\n")
			got := machine + "\n" + play(t, install(t, Spec{Machine: machine}), script)
			if os.Getenv(updateVariable) != "" {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			if diff := cmp.Diff(string(data), got); diff != "" {
				t.Errorf("transcript (-want +got):\n%s", diff)
			}
		})
	}
}

// TestListHasTheFormOfTheDriver compares nvidia-smi -L in a transcript with a published capture from a pod with a MIG device of an H100. Examples
// and documentation show this output.
func TestListHasTheFormOfTheDriver(t *testing.T) {
	const capture = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-950792bf-a01c-3f1a-e122-3473e67f54b2)\n" +
		"  MIG 3g.40gb     Device  0: (UUID: MIG-b3061c09-2a4c-5026-a575-79f86a5bb12c)\n"
	data, err := os.ReadFile("testdata/smi-h100x2.txt")
	must(t, err)
	uuid := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	if want := uuid.ReplaceAllString(capture, "UUID"); !strings.Contains(uuid.ReplaceAllString(string(data), "UUID"), want) {
		t.Errorf("the transcript does not contain\n%s", want)
	}
}

// play runs the commands of a script and returns the script with what they print.
func play(t *testing.T, dir, script string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(script) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ nvidia-smi")
		if !ok {
			continue
		}
		output, err := exec.CommandContext(t.Context(), SMI(dir), strings.Fields(command)...).CombinedOutput()
		fmt.Fprintf(&b, "$ nvidia-smi%s\n%s", command, output)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit):
			fmt.Fprintf(&b, "exit status %d\n", exit.ExitCode())
		case err != nil:
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestSMIWithoutDriver: the well-known message of nvidia-smi.
func TestSMIWithoutDriver(t *testing.T) {
	t.Parallel()
	dir := install(t, Spec{Machine: "t4x1"})
	must(t, os.Remove(statePath(dir, "580.65.06")))
	output, err := exec.CommandContext(t.Context(), SMI(dir), "-L").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(output), "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.") {
		t.Errorf("%v: %s", err, output)
	}
}
