package bundle

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// schedulerProgram compiles a program from a module with the path and a version of Kubernetes, as the scheduler is.
func schedulerProgram(t *testing.T, dir string) string {
	t.Helper()
	source := filepath.Join(dir, "scheduler")
	for name, text := range map[string]string{
		"go.mod":            "module example.com/scheduler\n\ngo 1.26\n\nrequire k8s.io/kubernetes v1.37.2\n\nreplace k8s.io/kubernetes => ./kubernetes\n",
		"main.go":           "package main\n\nimport _ \"k8s.io/kubernetes\"\n\nfunc main() {}\n",
		"kubernetes/go.mod": "module k8s.io/kubernetes\n\ngo 1.26\n",
		"kubernetes/k8s.go": "package kubernetes\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(source, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "tessera-scheduler")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, output)
	}
	return program
}

// The image of the scheduler has the version of Kubernetes that its program contains, and only such a program gets an image.
func TestSchedulerImageHasItsVersionOfKubernetes(t *testing.T) {
	dir := t.TempDir()
	image, err := Scheduler(Programs{Scheduler: schedulerProgram(t, dir)})
	if err != nil || image.Labels[KubernetesLabel] != "1.37" {
		t.Errorf("labels %v, error %v; want Kubernetes 1.37", image.Labels, err)
	}
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Scheduler(Programs{Scheduler: test}); !errors.Is(err, errNoKubernetes) {
		t.Errorf("a program without Kubernetes: %v", err)
	}
	if _, err := Scheduler(Programs{Scheduler: filepath.Join(dir, "scheduler", "main.go")}); err == nil {
		t.Error("a file that is no program gets an image")
	}
}

func TestMinorOf(t *testing.T) {
	for name, test := range map[string]struct {
		module debug.Module
		want   string
	}{
		"a release":                {debug.Module{Path: "k8s.io/kubernetes", Version: "v1.37.2"}, "1.37"},
		"a candidate":              {debug.Module{Path: "k8s.io/kubernetes", Version: "v1.38.0-rc.1"}, "1.38"},
		"replaced":                 {debug.Module{Path: "k8s.io/kubernetes", Version: "v1.37.2", Replace: &debug.Module{Path: "../kubernetes", Version: "(devel)"}}, "1.37"},
		"a version of development": {debug.Module{Path: "k8s.io/kubernetes", Version: "(devel)"}, ""},
		"another module":           {debug.Module{Path: "k8s.io/api", Version: "v0.37.2"}, ""},
	} {
		got, err := minorOf(&debug.BuildInfo{Deps: []*debug.Module{{Path: "k8s.io/client-go", Version: "v0.37.2"}, &test.module}})
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}
