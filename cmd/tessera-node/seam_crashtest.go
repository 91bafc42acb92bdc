//go:build crashtest

package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/health"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The environment of the program that is built for tests of crash safety.
const (
	// stepsVariable names a file to which every moment of every step is appended, a line each:
	// "before create-instance gpu-0000-3b-00-0 profile 19 at slices 3-3 of default/claim", and of health
	// "before save-health of gpu-0000-3b-00-0 XID 79".
	stepsVariable = "TESSERA_TEST_STEPS"
	// killVariable is the line at which the process kills itself, stopVariable the one at which whoever writes it stops until the process is sent
	// SIGCONT. The others go on: a process that is stopped may keep what it shares with the hardware locked, and stops a while after it asked to be.
	killVariable = "TESSERA_TEST_KILL"
	stopVariable = "TESSERA_TEST_STOP"
	// forgetVariable, when set, takes away the record that is written before the first side effect, to
	// show that the tests would notice.
	forgetVariable = "TESSERA_TEST_FORGET"
	// lookVariable is how often the GPUs' health is looked at, as a duration.
	lookVariable = "TESSERA_TEST_LOOK"
)

// seam lets a test watch every step, end or stop the process at it, and break a promise.
func seam(c prepare.Config) prepare.Config {
	if e := newExecutioner(); e.steps != "" {
		before := c.Observer
		c.Observer = func(when prepare.When, claim prepare.Ref, step prepare.Step) {
			before(when, claim, step)
			e.moment(fmt.Sprintf("%s %v of %v", when, step, claim))
		}
	}
	if os.Getenv(forgetVariable) != "" {
		c.Records = forgetful{c.Records}
	}
	return c
}

// seamHealth lets a test do the same around what is saved and told of the GPUs' health.
func seamHealth(c health.Config) health.Config {
	if often, err := time.ParseDuration(os.Getenv(lookVariable)); err == nil {
		c.Period = often
	}
	e := newExecutioner()
	if e.steps == "" {
		return c
	}
	c.Store = seamStore{c.Store, e}
	tell := c.Report
	c.Report = func(faults []gpu.Fault) {
		e.moments("before tell-health", faults)
		tell(faults)
		e.moments("after tell-health", faults)
	}
	return c
}

// executioner writes down every moment, ends the process at the fatal one and waits at the one to stop at. Two write to one file: what is appended at
// once stays together.
type executioner struct {
	steps, fatal, stop string
	writing            *sync.Mutex
}

func newExecutioner() executioner {
	return executioner{steps: os.Getenv(stepsVariable), fatal: os.Getenv(killVariable), stop: os.Getenv(stopVariable), writing: &sync.Mutex{}}
}

func (e executioner) moment(line string) {
	continued := make(chan os.Signal, 1)
	if line == e.stop {
		signal.Notify(continued, syscall.SIGCONT) // before anybody can read that it stops
		defer signal.Stop(continued)
	}
	e.write(line)
	if line == e.stop {
		<-continued
	}
}

func (e executioner) write(line string) {
	e.writing.Lock()
	defer e.writing.Unlock()
	file, err := os.OpenFile(e.steps, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(file, line)
	file.Close()
	if line == e.fatal {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// moments are one for each fault.
func (e executioner) moments(what string, faults []gpu.Fault) {
	for _, f := range faults {
		e.moment(fmt.Sprintf("%s of %s %v", what, f.GPU, f))
	}
}

// seamStore tells around what is saved.
type seamStore struct {
	health.Store
	executioner
}

// SaveHealth saves it.
func (w seamStore) SaveHealth(h gpu.Health, leads func() bool) (bool, error) {
	w.moments("before save-health", h.InEffect())
	saved, err := w.Store.SaveHealth(h, leads)
	w.moments("after save-health", h.InEffect())
	return saved, err
}

// forgetful records drop what is written before the first side effect.
type forgetful struct{ prepare.Records }

// Save keeps only what is written later.
func (f forgetful) Save(r prepare.Record) error {
	if r.State == prepare.StatePreparing {
		return nil
	}
	return f.Records.Save(r)
}
