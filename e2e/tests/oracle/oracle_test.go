package oracle

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/e2e/tests/driver"
	"github.com/tessera-gpu/tessera/e2e/tests/hooks"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	version = "580.65.06"
	hook    = "/usr/bin/true"
)

// side is one of the two generators.
type side string

const (
	ours   side = "ours"
	theirs side = "theirs"
)

// difference is what only one side gives a container, on purpose.
type difference struct {
	only side
	// things are those that begin with this text.
	things string
	reason string
}

// differences are all that are allowed. One that does not occur fails the test as well.
var differences = []difference{
	{theirs, "mount /run/nvidia-fabricmanager/socket from ROOT/run/nvidia-fabricmanager/socket nodev,noexec,nosuid,rbind,rprivate",
		"a client of the fabric manager can repartition the node: tenants do not get its socket"},
	{theirs, "env NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu",
		"the toolkit's own hooks read it; ours take folders as arguments"},
	{theirs, "hook createContainer update-application-profile",
		"narrows EGL to the GPUs at hand for graphics programs; EGL finds no other GPU's node anyway"},
	{theirs, "hook createRuntime apply-cuda-memory-limits",
		"limits of ours follow from claims; the agent recognizes this hook by its name (ToolkitLimits in kubelet-plugin/hook)"},
	{theirs, "hook apply-cuda-memory-limits: driver-root ROOT", "as above"},
	{theirs, "hook apply-cuda-memory-limits: gpu-id UUID", "as above"},
	{ours, "hook create-symlinks: link libnvidia-egl-gbm.so.1.1.2::/usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1",
		"the host has the link; nvcdi leaves it to ldconfig, and our cache hook makes no links"},
	{ours, "hook create-symlinks: link libnvidia-egl-wayland.so.1.1.19::/usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1",
		"as above"},
}

// given is what a container is given, as lines that can be compared.
type given []string

func (g *given) add(edits cdispec.ContainerEdits) {
	for _, n := range edits.DeviceNodes {
		*g = append(*g, fmt.Sprintf("node %s %s %s", n.Path, numbers(n), cmp.Or(n.Permissions, "rwm")))
	}
	for _, m := range edits.Mounts {
		options := slices.Sorted(slices.Values(m.Options))
		*g = append(*g, fmt.Sprintf("mount %s from %s %s", m.ContainerPath, m.HostPath, strings.Join(options, ",")))
	}
	for _, e := range edits.Env {
		*g = append(*g, "env "+e)
	}
	for _, h := range edits.Hooks {
		for _, one := range hooks.Apart(h.Args[1:]) {
			*g = append(*g, fmt.Sprintf("hook %s %s", h.HookName, one[0]))
			// A flag precedes its value or is joined to it.
			args := strings.Split(strings.Join(one[1:], "="), "=")
			for flag := range slices.Chunk(args, 2) {
				if len(flag) == 2 {
					*g = append(*g, fmt.Sprintf("hook %s: %s %s", one[0], strings.TrimPrefix(flag[0], "--"), flag[1]))
				}
			}
		}
	}
}

// numbers returns the device numbers that a container gets: ours are in the spec, and a runtime reads those of nvcdi's from the host.
func numbers(n *cdispec.DeviceNode) string {
	if n.Type != "" {
		return fmt.Sprintf("%s %d:%d", n.Type, n.Major, n.Minor)
	}
	var stat unix.Stat_t
	if err := unix.Stat(cmp.Or(n.HostPath, n.Path), &stat); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("c %d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
}

// plain returns the things without what differs from machine to machine.
func (g given) plain(root string) []string {
	uuid := regexp.MustCompile(`GPU-[0-9a-f-]+`)
	var things []string
	for _, thing := range g {
		if root != "/" {
			thing = strings.ReplaceAll(thing, root, "ROOT")
		}
		things = append(things, uuid.ReplaceAllString(thing, "UUID"))
	}
	return things
}

// generateTheirs returns what nvcdi gives a container with all GPUs.
func generateTheirs(t *testing.T, roots driverroot.Roots, more ...nvcdi.Option) []string {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	generator, err := nvcdi.New(append(more,
		nvcdi.WithLogger(log),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithDriverRoot(roots.Driver),
		nvcdi.WithDevRoot(roots.Dev),
		nvcdi.WithNVIDIACDIHookPath(hook),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	var g given
	common, err := generator.GetCommonEdits()
	if err != nil {
		t.Fatal(err)
	}
	g.add(*common.ContainerEdits)
	devices, err := generator.GetDeviceSpecsByID("all")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		g.add(d.ContainerEdits)
	}
	return g.plain(roots.Driver)
}

// generateOurs returns what our specs give a container with the GPUs with these minor numbers in one claim.
func generateOurs(t *testing.T, roots driverroot.Roots, minors ...int) []string {
	t.Helper()
	dir := t.TempDir()
	specs := cdi.New(cdi.Config{Dir: dir, Roots: roots, Hook: hook, Leads: func() bool { return true }})
	var devices []prepare.Prepared
	for _, minor := range minors {
		devices = append(devices, prepare.Prepared{
			Result: prepare.Result{Device: fmt.Sprintf("gpu-%d", minor)},
			Use:    gpu.Device{Use: gpu.Use{Shape: gpu.Whole}},
			GPU:    gpu.GPU{Minor: minor},
		})
	}
	if _, err := specs.Write("claim", devices); err != nil {
		t.Fatal(err)
	}
	var g given
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var spec cdispec.Spec
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		g.add(spec.ContainerEdits)
		for _, d := range spec.Devices {
			g.add(d.ContainerEdits)
		}
	}
	return g.plain(roots.Driver)
}

// without returns what the first has and the second has not, once each.
func without(first, second []string) []string {
	var things []string
	for _, thing := range first {
		if !slices.Contains(second, thing) {
			things = append(things, thing)
		}
	}
	slices.Sort(things)
	return slices.Compact(things)
}

func TestSameAsNVIDIAsGenerator(t *testing.T) {
	dir := machine(t)
	roots := driverroot.Roots{
		Host: "/", Proc: fakegpu.ProcRoot(dir), Sys: fakegpu.SysRoot(dir), Driver: fakegpu.DriverRoot(dir), Dev: fakegpu.DevRoot(dir),
	}
	compare(t, generateOurs(t, roots, 0, 1, 2, 3, 4, 5, 6, 7), generateTheirs(t, roots), differences)
}

// compare fails for every difference that is not listed, and for every listed one that does not occur.
func compare(t *testing.T, we, they []string, differences []difference) {
	t.Helper()
	t.Logf("%d things are the same", len(we)-len(without(we, they)))
	for s, things := range map[side][]string{ours: without(we, they), theirs: without(they, we)} {
		listed := slices.DeleteFunc(slices.Clone(differences), func(d difference) bool { return d.only != s })
		occurred := map[string]bool{}
		for _, thing := range things {
			i := slices.IndexFunc(listed, func(d difference) bool { return strings.HasPrefix(thing, d.things) })
			if i < 0 {
				t.Errorf("%s only: %s: no reason is given", s, thing)
				continue
			}
			occurred[listed[i].things] = true
		}
		for _, d := range listed {
			if !occurred[d.things] {
				t.Errorf("%s only: %s: does not occur any more", s, d.things)
			}
		}
	}
}

// TestNVIDIAsFiles compares both generators on the drivers that Debian packages. NVML is the fake's: the driver's own finds no kernel module. A process has
// one NVML, that of the first driver.
func TestNVIDIAsFiles(t *testing.T) {
	driver.Each(t, func(t *testing.T, root driver.Root) {
		if os.Geteuid() != 0 {
			t.Skip("needs root: makes device nodes")
		}
		dir := t.TempDir()
		if err := errors.Join(
			fakegpu.Install(t.Context(), dir, fakegpu.Spec{Machine: "h100x2", DriverVersion: root.Version}), fakegpu.MakeNodes(dir),
		); err != nil {
			t.Fatal(err)
		}
		roots := driverroot.Roots{Host: "/", Proc: fakegpu.ProcRoot(dir), Sys: fakegpu.SysRoot(dir), Driver: root.Path, Dev: fakegpu.DevRoot(dir)}
		library := nvml.New(nvml.WithLibraryPath(fakegpu.Library(dir)))
		compare(t, generateOurs(t, roots, 0, 1), generateTheirs(t, roots, nvcdi.WithNvmlLib(library)), debian)
	})
}

// debian are the differences on the drivers that Debian packages.
var debian = append(slices.DeleteFunc(slices.Clone(differences), func(d difference) bool {
	return strings.HasPrefix(d.things, "mount ") || d.only == ours
}),
	difference{ours, "hook create-symlinks: link ", "the host has the links, over /etc/alternatives; nvcdi leaves them to ldconfig, and our cache hook makes no links"},
	difference{ours, "mount /usr/bin/nvidia-smi from ROOT/usr/lib/nvidia/current/nvidia-smi",
		"nvcdi does not find it behind the absolute links of /etc/alternatives, which lead out of the driver's root"},
)

var driverRoot = flag.String("driver-root", "", "root of the files of this machine's driver, for TestThisMachine")

// TestThisMachine prints what both generators give a container with the first GPU of a machine with a real driver: the hardware bundle runs it.
func TestThisMachine(t *testing.T) {
	if *driverRoot == "" {
		t.Skip("needs a machine with a GPU and the flag -driver-root")
	}
	roots := driverroot.Roots{Host: "/", Proc: "/proc", Sys: "/sys", Driver: *driverRoot, Dev: "/"}
	we, they := generateOurs(t, roots, 0), generateTheirs(t, roots)
	for what, things := range map[string][]string{"both": without(we, without(we, they)), "ours": without(we, they), "theirs": without(they, we)} {
		for _, thing := range things {
			t.Logf("%s: %s", what, thing)
		}
	}
}
