package nvidia

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/tests/contract"
)

var update = flag.Bool("update", false, "write the table of the contract")

// tableFile is the table, from this folder.
const tableFile = "../testdata/contract.yaml"

// TestTable observes each entry point and compares with the table, on which the fake driver is tested.
func TestTable(t *testing.T) {
	var images []contract.Image
	for _, v := range variants() {
		image, err := observe(t, v)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		images = append(images, image)
	}
	text, err := yaml.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte("# What NVIDIA's driver images do to a machine. Written by make test-contract CONTRACTFLAGS=-update.\n"), text...)
	if *update {
		if err := os.WriteFile(tableFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("the entry points differ from %s: -want +got\n%s", tableFile, diff)
	}
}

// observe installs, restarts and removes a driver, with RDMA where the image has it, and returns what the entry point did.
func observe(t *testing.T, v variant) (contract.Image, error) {
	t.Helper()
	image := contract.Image{Name: v.name, Tag: version + "-" + v.host.OS}
	if v.precompiled {
		image.Tag = version + "-" + v.host.Kernel + "-" + v.host.OS
	}
	var files map[string]string
	if compiled(v) {
		files = adapter(networkContainer())
	}
	s := newScene(t, v, files)
	if compiled(v) {
		s.rdma(false)
	}
	pod, err := s.up(version)
	if err != nil {
		return image, err
	}
	if image.Install, err = s.steps(); err != nil {
		return image, err
	}
	if s.fast {
		if err := pod.Kill(s.main()); err != nil {
			return image, err
		}
		if err := pod.Restart(s.main()); err != nil {
			return image, err
		}
		if err := s.wait(pod); err != nil {
			return image, err
		}
		if image.Restart, err = s.steps(); err != nil {
			return image, err
		}
	}
	if _, err := pod.Stop(); err != nil {
		return image, err
	}
	if image.Remove, err = s.steps(); err != nil {
		return image, err
	}
	for i := range image.Remove {
		image.Remove[i].At = "" // the line of a handler, or that at which the signal arrives
	}
	return image, s.scan(&image)
}

// steps returns what the driver container did since the last call.
func (s *scene) steps() ([]contract.Step, error) {
	calls, err := s.machine.Calls()
	if err != nil {
		return nil, err
	}
	seen := calls[s.seen:]
	s.seen = len(calls)
	var steps []contract.Step
	for _, c := range seen {
		if do := contract.StepOf(c); c.Container == s.main() && do != "" {
			steps = append(steps, contract.Step{Do: do, At: strings.Replace(c.At, "nvidia-driver", s.name+"/nvidia-driver", 1)})
		}
	}
	return steps, nil
}

var (
	variable = regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]{2,})`)
	assigned = regexp.MustCompile(`^\s*(?:export\s+|local\s+)?([A-Z][A-Z0-9_]*)=(.*)$`)
	awaits   = regexp.MustCompile(`^\s*until\s+(.*?);?\s*$`)
	traps    = regexp.MustCompile(`^\s*trap "(.*)" (HUP INT QUIT PIPE TERM|EXIT)\s*$`)
)

// scan reads from the entry point which variables it takes from its environment, for what it waits and which signals it handles.
func (s *scene) scan(image *contract.Image) error {
	own, read := map[string]bool{}, map[string][]string{}
	for _, name := range []string{"nvidia-driver", "common.sh"} {
		text, err := os.ReadFile(filepath.Join(theStage.files, "driver-container", s.name, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			at := fmt.Sprintf("%s/%s:%d", s.name, name, i+1)
			if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "#") {
				continue
			}
			if m := assigned.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "{"+m[1]) {
				own[m[1]] = true
			}
			for _, m := range variable.FindAllStringSubmatch(line, -1) {
				read[m[1]] = append(read[m[1]], at)
			}
			if m := awaits.FindStringSubmatch(line); m != nil {
				image.Waits = append(image.Waits, contract.Step{Do: m[1], At: at})
			}
			if m := traps.FindStringSubmatch(line); m != nil && (strings.Contains(m[1], "exit") || strings.Contains(m[1], "_shutdown")) {
				does := "exits"
				if strings.Contains(m[1], "_shutdown") {
					does = "unloads the driver"
				}
				image.Signals = append(image.Signals, contract.Step{Do: does + " at " + m[2], At: at})
			}
		}
	}
	image.Env = map[string]string{}
	for name, lines := range read {
		if !own[name] && !slices.Contains([]string{"BASH_SOURCE", "PATH"}, name) {
			image.Env[name] = lines[0]
		}
	}
	return nil
}
