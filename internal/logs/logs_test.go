package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// program runs a command that logs in another process, because the configuration applies to the whole process.
func program(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$")
	cmd.Env = append(os.Environ(), "LOGS_TEST_ARGS="+strings.Join(append([]string{"program"}, args...), " "))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	return stderr.String(), err
}

func TestProgram(t *testing.T) {
	args := strings.Fields(os.Getenv("LOGS_TEST_ARGS"))
	if len(args) == 0 {
		t.Skip("only for the other tests")
	}
	root := &cobra.Command{Use: "program", SilenceUsage: true}
	Add(root)
	root.AddCommand(&cobra.Command{Use: "sub", RunE: func(cmd *cobra.Command, _ []string) error {
		logger := klog.FromContext(cmd.Context())
		logger.Info("Prepared", "claim", klog.KRef("team", "gpu"))
		logger.V(4).Info("Details")
		logger.Error(errors.New("no device"), "A claim failed")
		return nil
	}})
	root.SetArgs(args[1:])
	if err := root.ExecuteContext(t.Context()); err != nil {
		os.Exit(3)
	}
	klog.Flush()
	os.Exit(0)
}

func TestFormats(t *testing.T) {
	text, err := program(t, "sub")
	if err != nil || !strings.Contains(text, `"Prepared" claim="team/gpu"`) || strings.Contains(text, "Details") {
		t.Errorf("as text: %v\n%s", err, text)
	}
	text, err = program(t, "sub", "--logging-format=json", "-v=4")
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for line := range strings.Lines(text) {
		var entry struct {
			Msg, Err string
			Claim    struct{ Name, Namespace string }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		messages = append(messages, entry.Msg+entry.Claim.Name+entry.Err)
	}
	if got := strings.Join(messages, ", "); got != "Preparedgpu, Details, A claim failedno device" {
		t.Errorf("as JSON: %s", got)
	}
	if text, err := program(t, "sub", "--logging-format=xml"); err == nil || !strings.Contains(text, `Unsupported log format`) {
		t.Errorf("an unknown format: %v\n%s", err, text)
	}
}
