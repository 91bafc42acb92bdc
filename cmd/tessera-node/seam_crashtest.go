//go:build crashtest

package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The environment of the program that is built for tests of crash safety.
const (
	// stepsVariable names a file to which every moment of every step is appended, a line each:
	// "before create-instance gpu-0000-3b-00-0 profile 19 at slices 3-3 of default/claim".
	stepsVariable = "TESSERA_TEST_STEPS"
	// killVariable is the line at which the process kills itself.
	killVariable = "TESSERA_TEST_KILL"
	// forgetVariable, when set, takes away the record that is written before the first side effect, to
	// show that the tests would notice.
	forgetVariable = "TESSERA_TEST_FORGET"
)

// seam lets a test watch every step, end the process as a power cut would, and break a promise.
func seam(c prepare.Config) prepare.Config {
	if path := os.Getenv(stepsVariable); path != "" {
		e := executioner{steps: path, fatal: os.Getenv(killVariable), writing: &sync.Mutex{}, before: c.Observer}
		c.Observer = e.observe
	}
	if os.Getenv(forgetVariable) != "" {
		c.Records = forgetful{c.Records}
	}
	return c
}

// executioner writes down every moment and ends the process at the fatal one.
type executioner struct {
	steps, fatal string
	writing      *sync.Mutex
	before       prepare.Observer
}

func (e executioner) observe(when prepare.When, claim prepare.Ref, step prepare.Step) {
	e.before(when, claim, step)
	e.writing.Lock()
	defer e.writing.Unlock()
	line := fmt.Sprintf("%s %v of %v", when, step, claim)
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

// forgetful records drop what is written before the first side effect.
type forgetful struct{ prepare.Records }

// Save keeps only what is written later.
func (f forgetful) Save(r prepare.Record) error {
	if r.State == prepare.Preparing {
		return nil
	}
	return f.Records.Save(r)
}
