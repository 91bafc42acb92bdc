package fakegpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// The size of the stress: the number of concurrent processes, each killed repeatedly, the duration, and the minimal
// number of changes.
const (
	stressProcesses = 8
	stressTime      = 5 * time.Second
	stressChanges   = 100
	stressMachine   = "h100x2"
)

// TestKill lets processes create and destroy at random and kills them at random moments. At every moment the state
// must be one that MIG allows, and at the end no lock may be held.
func TestKill(t *testing.T) {
	if dir, client := inClient(); client {
		lib := start(t, dir)
		if os.Getenv(roleVariable) == sweeper {
			sweepAll(t, lib)
			return
		}
		churn(t, lib)
	}
	dir := install(t, Spec{Machine: stressMachine})
	if err := Latency(dir, time.Millisecond, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	var over atomic.Bool
	for worker := range stressProcesses {
		random := rand.New(rand.NewPCG(2, uint64(worker)))
		group.Go(func() error {
			defer over.Store(true) // also when it failed
			return killAgain(t, dir, random, &over)
		})
	}
	watch(t, dir, &over)
	over.Store(true)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	runClient(t, dir, roleVariable+"="+sweeper)
}

// What the client of TestKill does, if not to churn.
const (
	roleVariable = "FAKEGPU_TEST_ROLE"
	sweeper      = "sweep"
)

// sweepAll destroys what the killed processes left and fills the GPUs: none of their locks may block that.
func sweepAll(t *testing.T, lib nvml.Interface) {
	for i := range 2 {
		d := gpuAt(t, lib, i)
		enableIfIdle(d)
		sweep(d, func() bool { return true })
		for slice := range 7 {
			createCompute(t, create(t, d, 19, slice, 1), 0)
		}
	}
}

// killAgain starts a client and kills it after a random time, repeatedly, until the test is over.
func killAgain(t *testing.T, dir string, random *rand.Rand, over *atomic.Bool) error {
	for !over.Load() {
		command := clientCommand(t, dir)
		out, err := command.StdoutPipe()
		if err != nil {
			return err
		}
		if err := command.Start(); err != nil {
			return err
		}
		// The client prints a line when it works; from then on every moment is equally good.
		if _, err := out.Read(make([]byte, 64)); err != nil {
			return fmt.Errorf("client ended early: %w", err)
		}
		timer := time.NewTimer(time.Duration(random.IntN(200)) * time.Millisecond)
		<-timer.C // a random moment, not one that an event marks
		if err := command.Process.Kill(); err != nil {
			return err
		}
		if err := command.Wait(); err == nil {
			return fmt.Errorf("client ended by itself")
		}
	}
	return nil
}

// churn creates and destroys until the process is killed; it ends the test only when NVML returns an error that it
// never may.
func churn(t *testing.T, lib nvml.Interface) {
	random := rand.New(rand.NewPCG(uint64(os.Getpid()), 3))
	fmt.Println("working")
	for {
		d := gpuAt(t, lib, random.IntN(2))
		if random.IntN(50) == 0 {
			d.SetMigMode(random.IntN(2))
		}
		enableIfIdle(d)
		profile := [][2]int{{19, 1}, {20, 1}, {15, 2}, {14, 2}, {9, 4}, {5, 4}, {0, 8}}[random.IntN(7)]
		gi, ret := tryCreate(d, profile[0], random.IntN(7), profile[1])
		if ret == nvml.SUCCESS {
			gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: uint32(random.IntN(5))})
		}
		if unexpected(ret) {
			t.Fatalf("create: %v", name(ret))
		}
		if random.IntN(3) > 0 {
			sweep(d, func() bool { return random.IntN(2) == 0 })
		}
	}
}

func enableIfIdle(d nvml.Device) {
	if current, _, ret := d.GetMigMode(); ret == nvml.SUCCESS && current == nvml.DEVICE_MIG_DISABLE {
		d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	}
}

// unexpected reports an error that no race between processes explains.
func unexpected(ret nvml.Return) bool {
	return !slices.Contains([]nvml.Return{
		nvml.SUCCESS, nvml.ERROR_INSUFFICIENT_RESOURCES, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED,
	}, ret)
}

// sweep destroys the chosen instances on the GPU, also those of other processes.
func sweep(d nvml.Device, chosen func() bool) {
	for id := range maxInstances {
		gi, ret := d.GetGpuInstanceById(id)
		if ret != nvml.SUCCESS || !chosen() {
			continue
		}
		for compute := range maxComputes {
			if ci, ret := gi.GetComputeInstanceById(compute); ret == nvml.SUCCESS {
				ci.Destroy()
			}
		}
		gi.Destroy()
	}
}

// watch reads the state repeatedly until it was under stress for long enough, or the test is over.
func watch(t *testing.T, dir string, over *atomic.Bool) {
	t.Helper()
	snapshots, end := 0, time.Now().Add(stressTime)
	err := withState(dir, func(s *session) error {
		for !over.Load() && (time.Now().Before(end) || s.state().Generation < stressChanges) {
			state, err := Read(dir)
			if err != nil {
				return err
			}
			if err := sound(state); err != nil {
				return err
			}
			snapshots++
		}
		t.Logf("%d snapshots of %d changes were sound", snapshots, s.state().Generation)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// sound returns an error for a state that MIG does not allow.
func sound(state State) error {
	rules := sevenSlices(true)
	seen := map[string]bool{}
	for _, g := range state.GPUs {
		model := &refGPU{rules: rules}
		if len(g.Instances) > 0 && !g.MIG {
			return fmt.Errorf("GPU %d has instances with MIG off", g.Index)
		}
		for _, i := range g.Instances {
			if ret := model.fits(i.Profile, i.Start, i.Size); ret != nvml.SUCCESS {
				return fmt.Errorf("GPU %d: %+v does not fit with %v", g.Index, i, model)
			}
			held := &refInstance{profile: i.Profile, start: i.Start}
			model.instances = append(model.instances, held)
			for _, c := range i.Computes {
				size, _ := rules.computes(rules.profiles[i.Profile], c.Profile)
				if held.overlaps(c.Start, c.Size) || c.Size != size || seen[c.UUID] {
					return fmt.Errorf("GPU %d: compute instance %+v does not fit into %+v", g.Index, c, i)
				}
				held.computes = append(held.computes, refCompute{c.ID, c.Profile, c.Start, c.Size})
				seen[c.UUID] = true
			}
		}
	}
	return nil
}

// TestDeathWhileWriting kills a process that has overwritten half of the state and not committed it.
func TestDeathWhileWriting(t *testing.T) {
	if dir, client := inClient(); client {
		err := changeLive(dir, func(l *live) error {
			for i := range l.GPUs {
				l.GPUs[i] = gpuState{MIG: 7, Lost: 1}
			}
			l.DriverVersion = text32{'x'}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
		t.Fatalf("still alive: %v", err)
	}
	dir := install(t, Spec{Machine: stressMachine})
	before, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // both halves
		if err := clientCommand(t, dir).Run(); err == nil {
			t.Fatal("the client was not killed")
		}
		after, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("state after the death (-before +after):\n%s", diff)
		}
		if err := Latency(dir, 0, 0); err != nil { // takes the lock of the dead process
			t.Fatal(err)
		}
	}
}
