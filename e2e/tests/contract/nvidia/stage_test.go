package nvidia

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/render"
)

// filesEnv is the variable with the folder of NVIDIA's files.
const filesEnv = "TESSERA_NVIDIA_FILES"

// stage has what all cases share.
type stage struct {
	// files is the folder of NVIDIA's files, recorder the program of package recorder, images the folder of the images.
	files, recorder, images string
	node                    machine.Image
	built                   map[string]machine.Image
}

// theStage is built by TestMain.
var theStage *stage

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	s, err := newStage()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		return 1
	}
	defer os.RemoveAll(s.images) //nolint:errcheck // in the temporary folder
	theStage = s
	code := m.Run()
	fmt.Printf("contract: %d cases and %d deviations with NVIDIA's entry points\n", casesRun.Load(), deviationsRun.Load())
	return code
}

// casesRun and deviationsRun count what has run.
var casesRun, deviationsRun atomic.Int32

func newStage() (*stage, error) {
	files := os.Getenv(filesEnv)
	if files == "" {
		return nil, fmt.Errorf("%s is not set: it must be the folder with NVIDIA's files (make test-contract %[1]s=<folder>)", filesEnv)
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("these tests mount file systems; run them as root")
	}
	files, err := filepath.Abs(files)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(files, "driver-container")); err != nil {
		return nil, fmt.Errorf("%s: %w; it must have NVIDIA's gpu-driver-container as driver-container", filesEnv, err)
	}
	s := &stage{files: files, built: map[string]machine.Image{}}
	if s.images, err = os.MkdirTemp("", "tessera-contract-"); err != nil {
		return nil, err
	}
	s.recorder = filepath.Join(s.images, "recorder")
	agent := filepath.Join(s.images, "tessera-node")
	for program, cgo := range map[string]string{s.recorder: "0", agent: "1"} {
		source := "github.com/tessera-gpu/tessera/e2e/tests/contract/recorder"
		if program == agent {
			source = "github.com/tessera-gpu/tessera/cmd/tessera-node"
		}
		c := exec.Command("go", "build", "-o", program, source) //nolint:noctx // go test has a timeout
		c.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if text, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", filepath.Base(program), err, text)
		}
	}
	s.node, err = machine.BuildImage(filepath.Join(s.images, "node"), s.recorder, false)
	if err != nil {
		return nil, err
	}
	s.node.Entrypoint = []string{"/usr/bin/tessera-node"}
	return s, machine.InstallProgram(s.node, agent, "/usr/bin/tessera-node")
}

// scene is one machine with its driver pods.
type scene struct {
	variant
	machine *machine.Machine
	// spec configures the driver as a user does, configs are its ConfigMaps and Secrets.
	spec    v1alpha1.DriverSpec
	configs machine.Configs
	// deviate changes the rendered pod, to prove that a case notices it.
	deviate func(*corev1.PodSpec)
	// limit is how long a pod may take to be ready.
	limit time.Duration
	// seen is the number of recorded calls that steps has returned.
	seen int
}

// newScene starts a machine for a variant.
func newScene(t *testing.T, v variant, files map[string]string) *scene {
	t.Helper()
	m, err := machine.Start(t.TempDir(), theStage.recorder, machine.Spec{OS: v.osRelease(), Kernel: v.host.Kernel, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &scene{variant: v, machine: m, configs: machine.Configs{}, limit: limit}
}

// pod returns the driver pod that the installer renders for the machine, from the default values of the chart.
func (s *scene) pod(version string) (*machine.Pod, error) {
	in := render.Input{
		Namespace: "tessera-system",
		Images: render.Images{
			Node: "node", Driver: "driver", DriverVersion: version, GDS: "gds:1", GDRCopy: "gdrcopy:1",
			DCGMExporter: "exporter", Scheduler: "scheduler", VGPUDeviceManager: "vgpu-device-manager:1",
		},
		Drivers:  []render.DriverSet{{Owner: "ClusterPolicy/default", Spec: s.spec, Host: s.host, VGPU: s.vgpu}},
		Contents: map[string]string{}, Keys: map[string][]string{},
	}
	in.Drivers[0].Spec.UsePrecompiled = s.precompiled
	if s.vgpu {
		in.Policy.Spec.VGPUManager.Component = v1alpha1.Component{Enabled: new(true), Image: "vgpu-manager:" + version}
	}
	for name, data := range s.configs {
		for _, kind := range []string{"ConfigMap/", "Secret/"} {
			in.Contents[kind+name] = fmt.Sprint(data)
			in.Keys[kind+name] = slices.Sorted(maps.Keys(data))
		}
	}
	objects, err := render.Objects(in)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		ds, ok := object.(*appsv1.DaemonSet)
		if !ok || !strings.HasPrefix(ds.Name, render.OperandDriver+"-") && !strings.HasPrefix(ds.Name, render.OperandVGPUManager+"-") {
			continue
		}
		return s.start(ds.Spec.Template.Spec, version)
	}
	return nil, errors.New("no driver is rendered")
}

// start returns a pod with the image of the variant.
func (s *scene) start(spec corev1.PodSpec, version string) (*machine.Pod, error) {
	key := s.name + " " + version
	image, found := theStage.built[key]
	if !found {
		var err error
		if image, err = theStage.image(s.variant, version); err != nil {
			return nil, err
		}
		theStage.built[key] = image
	}
	if s.deviate != nil {
		s.deviate(&spec)
	}
	s.substitute(&spec)
	images := machine.Images{"node": theStage.node}
	for _, c := range spec.Containers {
		images[c.Image] = image
	}
	return s.machine.NewPod(spec, images, s.configs), nil
}

// substitute replaces what only the kernel of this host could do: unload removes modules with the recorder and not with delete_module(2).
func (s *scene) substitute(spec *corev1.PodSpec) {
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == "unload" {
			c.Args = append(c.Args, "--simulated=/usr/lib/contract/kernel")
		}
	}
}

// limit is how long a pod may take to be ready: it takes a second on an idle machine. One that cannot become ready is given up after hopeless.
const (
	limit    = 60 * time.Second
	hopeless = 5 * time.Second
)

// up starts a driver pod and waits until its startup probes have succeeded and its entry point waits for a signal.
func (s *scene) up(version string) (*machine.Pod, error) {
	pod, err := s.started(version)
	if err != nil {
		return nil, err
	}
	return pod, s.wait(pod)
}

// started returns the pod of a driver that was started, and need not become ready.
func (s *scene) started(version string) (*machine.Pod, error) {
	pod, err := s.pod(version)
	if err != nil {
		return nil, err
	}
	return pod, pod.Start()
}

func (s *scene) ready(pod *machine.Pod) error {
	if err := pod.Start(); err != nil {
		return err
	}
	return s.wait(pod)
}

// wait waits for the startup probes of a pod, and for the entry point: the vGPU manager leaves its modules when a signal comes earlier.
func (s *scene) wait(pod *machine.Pod) error {
	if err := pod.Wait(s.limit); err != nil {
		return err
	}
	return s.until("the entry point waits for a signal", func() bool { return strings.Contains(pod.Output(s.main()), "now waiting for signal") })
}

// main returns the name of the driver container.
func (s *scene) main() string {
	if s.vgpu {
		return render.VGPUContainer
	}
	return render.DriverContainer
}

// until waits for a condition.
func (s *scene) until(what string, met func() bool) error {
	tick, end := time.NewTicker(10*time.Millisecond), time.After(s.limit)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-end:
			return fmt.Errorf("not within %s: %s", s.limit, what)
		}
	}
	return nil
}
