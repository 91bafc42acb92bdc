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

// The environment variables of the program that is built for tests of crash safety.
const (
	// stepsVariable names the file to which every moment of every step is appended, one per line: "before create-instance
	// gpu-0000-3b-00-0 profile 19 at slices 3-3 of default/claim", and for health "before save-health of gpu-0000-3b-00-0 XID
	// 79".
	stepsVariable = "TESSERA_TEST_STEPS"
	// killVariable is the line at which the process kills itself. stopVariable is the line at which the goroutine that writes
	// it waits until the process receives SIGCONT; the other goroutines continue, because a stopped process could hold locks of
	// the hardware and stops with a delay.
	killVariable = "TESSERA_TEST_KILL"
	stopVariable = "TESSERA_TEST_STOP"
	// dropRecordVariable, if set, drops the record that is written before the first side effect. A test that sets it must fail.
	dropRecordVariable = "TESSERA_TEST_DROP_RECORD"
	// lookVariable is the period of health checks, as a duration.
	lookVariable = "TESSERA_TEST_LOOK"
)

// seam records every step, kills or stops the process at a given one, and drops records, as the environment requests.
func seam(c prepare.Config) prepare.Config {
	if e := newExecutioner(); e.steps != "" {
		before := c.Observer
		c.Observer = func(when prepare.When, claim prepare.Ref, step prepare.Step) {
			before(when, claim, step)
			e.moment(fmt.Sprintf("%s %v of %v", when, step, claim))
		}
	}
	if os.Getenv(dropRecordVariable) != "" {
		c.Records = lossyRecords{c.Records}
	}
	return c
}

// seamHealth does the same for the saving and reporting of health.
func seamHealth(c health.Config) health.Config {
	if often, err := time.ParseDuration(os.Getenv(lookVariable)); err == nil {
		c.Period = often
	}
	e := newExecutioner()
	if e.steps == "" {
		return c
	}
	c.Store = seamStore{c.Store, e}
	report := c.Report
	c.Report = func(faults []gpu.Fault) {
		e.moments("before report-health", faults)
		report(faults)
		e.moments("after report-health", faults)
	}
	return c
}

// executioner appends every moment to the file, kills the process at the fatal one and waits at the one to stop at.
// Several executioners write to one file; each line is appended with one write.
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
		signal.Notify(continued, syscall.SIGCONT) // before the line can be read
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

// moments writes one moment per fault.
func (e executioner) moments(what string, faults []gpu.Fault) {
	for _, f := range faults {
		e.moment(fmt.Sprintf("%s of %s %v", what, f.GPU, f))
	}
}

// seamStore writes a moment before and after each save.
type seamStore struct {
	health.Store
	executioner
}

// SaveHealth implements health.Store.
func (w seamStore) SaveHealth(h gpu.Health, leads func() bool) (bool, error) {
	w.moments("before save-health", h.InEffect())
	saved, err := w.Store.SaveHealth(h, leads)
	w.moments("after save-health", h.InEffect())
	return saved, err
}

// lossyRecords drops the records that are written before the first side effect.
type lossyRecords struct{ prepare.Records }

// Save implements prepare.Records.
func (f lossyRecords) Save(r prepare.Record) error {
	if r.State == prepare.StatePreparing {
		return nil
	}
	return f.Records.Save(r)
}
