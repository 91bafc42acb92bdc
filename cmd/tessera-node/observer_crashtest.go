//go:build crashtest

package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// The environment of the program that is built for tests of crash safety.
const (
	// stepsVariable names a file to which every moment of every step is appended, a line each.
	stepsVariable = "TESSERA_TEST_STEPS"
	// killVariable is the number of the moment, from 1, at which the process kills itself.
	killVariable = "TESSERA_TEST_KILL"
)

// observer writes down every moment and ends the process, as a power cut would, at the chosen one.
func observer() prepare.Observer {
	path := os.Getenv(stepsVariable)
	if path == "" {
		return nil
	}
	fatal, _ := strconv.Atoi(os.Getenv(killVariable))
	var mutex sync.Mutex
	moment := 0
	return func(when prepare.When, claim prepare.Ref, step prepare.Step) {
		mutex.Lock()
		defer mutex.Unlock()
		moment++
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(file, "%s %v of %v\n", when, step, claim)
		file.Close()
		if moment == fatal {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}
