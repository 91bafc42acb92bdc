package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/pci"
)

// card is a driver with two GPUs that is as strict about resets as the hardware.
type card struct {
	open bool
	// users are processes by GPU; lost are GPUs that do not answer, until a time after their reset.
	users map[string][]int
	lost  map[string]bool
	back  time.Time
	// fail is what nvidia-smi says, closed that the driver cannot be opened again.
	fail   error
	closed bool
	done   []string
	// hang holds up every question about a GPU, whatever its context says.
	hang chan struct{}
}

func (c *card) Disconnected(ctx context.Context, f func(context.Context) error) error {
	if !c.open {
		return gpu.ErrNoDriver
	}
	c.open = false
	err := f(ctx)
	if c.closed {
		return errors.Join(err, fmt.Errorf("reopen the driver: %w", gpu.ErrNoDriver))
	}
	c.open = true
	return err
}

func (c *card) Users(_ context.Context, name string) ([]int, error) {
	if c.hang != nil {
		<-c.hang
	}
	if c.lost[name] {
		return nil, gpu.ErrLost
	}
	return c.users[name], nil
}

func (c *card) Check(_ context.Context, name string) (gpu.Checkup, error) {
	switch {
	case !c.open:
		return gpu.Checkup{}, gpu.ErrNoDriver
	case c.lost[name] || time.Now().Before(c.back):
		return gpu.Checkup{}, gpu.ErrLost
	}
	return gpu.Checkup{GPU: name}, nil
}

// nvidiaSMI resets GPUs by their addresses.
func (c *card) nvidiaSMI(_ context.Context, addresses []string) error {
	switch {
	case c.open:
		return fmt.Errorf("the agent has the GPU open: %w", gpu.ErrBusy)
	case c.fail != nil:
		return c.fail
	}
	c.done = append(c.done, strings.Join(addresses, " "))
	c.lost, c.back = nil, time.Now().Add(3*time.Second)
	return nil
}

func TestReset(t *testing.T) {
	node := gpu.Node{Name: "n", GPUs: []gpu.GPU{{PCI: "0000:1b:00.0"}, {PCI: "0000:3b:00.0"}}}
	a, b := node.GPUs[0].Name(), node.GPUs[1].Name()
	refused := errors.New("Unknown Error")
	tests := map[string]struct {
		card    card
		gpus    []string
		is      error
		message string
		reset   []string
	}{
		"alone":                {card: card{open: true}, gpus: []string{a}, reset: []string{"0000:1b:00.0"}},
		"together":             {card: card{open: true}, gpus: []string{a, b}, reset: []string{"0000:1b:00.0 0000:3b:00.0"}},
		"lost":                 {card: card{open: true, lost: map[string]bool{b: true}}, gpus: []string{b}, reset: []string{"0000:3b:00.0"}},
		"in use":               {card: card{open: true, users: map[string][]int{b: {4711, 4712}}}, gpus: []string{a, b}, is: gpu.ErrBusy, message: "processes [4711 4712] use " + b},
		"another is in use":    {card: card{open: true, users: map[string][]int{b: {4711}}}, gpus: []string{a}, reset: []string{"0000:1b:00.0"}},
		"refused":              {card: card{open: true, fail: refused}, gpus: []string{a}, is: refused, message: "Unknown Error"},
		"no driver":            {card: card{}, gpus: []string{a}, is: gpu.ErrNoDriver, message: "reset " + a},
		"no driver afterwards": {card: card{open: true, closed: true}, gpus: []string{a}, is: gpu.ErrNoDriver, message: a + " does not respond for 45s after its reset"},
		"not on the node":      {card: card{open: true}, gpus: []string{"gpu-x"}, message: "gpu-x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := test.card
				touched := false
				r := &resetter{node: func() gpu.Node { return node }, connection: &c, reset: c.nvidiaSMI, refresh: func() {}}
				begun := time.Now()
				at, err := r.Reset(t.Context(), test.gpus, func() { touched = len(c.done) == 0 && !c.open })
				if (err == nil) != (test.reset != nil) || test.is != nil && !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.message) {
					t.Errorf("%v, want %q", err, test.message)
				}
				if err == nil && (cmp.Diff(test.reset, c.done) != "" || !at.Equal(begun) || !touched) {
					t.Errorf("reset %q at %v, begun at %v; touched before: %t", c.done, at, begun, touched)
				}
				if errors.Is(err, gpu.ErrBusy) && touched {
					t.Error("a GPU in use was touched")
				}
				for _, name := range test.gpus {
					if _, answers := c.Check(t.Context(), name); err == nil && answers != nil {
						t.Errorf("%s is reported as reset and does not respond", name)
					}
				}
				if took := time.Since(begun); took > responseTimeout+time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A GPU on which the driver hangs is given up in time, and not touched when the driver returns at last.
func TestResetOfAGPUThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{open: true, hang: make(chan struct{})}
		node := gpu.Node{Name: "n", GPUs: []gpu.GPU{{PCI: "0000:1b:00.0"}}}
		r := &resetter{node: func() gpu.Node { return node }, connection: c, reset: c.nvidiaSMI, refresh: func() {}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := r.Reset(ctx, []string{node.GPUs[0].Name()}, func() { t.Error("touched") })
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "boot the node") || took != time.Minute+grace {
			t.Errorf("after %v: %v", took, err)
		}
		close(c.hang)
		synctest.Wait()
		if len(c.done) > 0 {
			t.Errorf("reset %q after it was given up", c.done)
		}
	})
}

func TestResetOfVirtualMachines(t *testing.T) {
	node := gpu.Node{Name: "n", GPUs: []gpu.GPU{{PCI: "0000:1b:00.0"}}}
	r := &resetter{node: func() gpu.Node { return node }, connection: pci.New(t.TempDir(), nil), refresh: func() {}}
	if _, err := r.Reset(t.Context(), []string{node.GPUs[0].Name()}, func() { t.Error("touched") }); !errors.Is(err, gpu.ErrUnsupported) {
		t.Error(err)
	}
}
