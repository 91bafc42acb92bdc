package guest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// theReaper is the only reaper of the process, as in a guest: two would reap each other's children. early is a child that
// exited before the reaper ran.
var theReaper, early = func() (func() *reaper, func() *process) {
	start := sync.OnceValues(func() (*reaper, *process) {
		r := newReaper()
		p, err := r.start("/bin/true", []string{"true"}, nil, os.Stdout)
		if err == nil {
			err = unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) // waits for the exit and does not reap
		}
		if err != nil {
			panic(err)
		}
		go r.run()
		return r, p
	})
	return func() *reaper { r, _ := start(); return r }, func() *process { _, p := start(); return p }
}()

func TestChildThatExitsBeforeTheReaperRunsIsReaped(t *testing.T) {
	select {
	case <-early().done:
	case <-patient(t).Done():
		t.Error("the child was not reaped")
	}
}

// patient returns a context with the timeout of the tests.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

// startMachine runs services with a control socket, as a guest does, without namespaces. The services stop when the
// test ends.
func startMachine(t *testing.T, specs ...machine.Service) (control machine.Machine, folder string) {
	t.Helper()
	folder = t.TempDir()
	logs, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	list, err := newServices(machine.Spec{Name: "test", Path: os.Getenv("PATH"), Services: specs}, theReaper(), logs)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder) // the path of a socket is limited
	listener, err := net.Listen("unix", machine.ControlSocket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	list.start()
	go serve(ctx, listener, list)
	t.Cleanup(func() {
		cancel()
		list.stop()
		listener.Close() //nolint:errcheck // the test is over
	})
	return machine.At(folder, "unused"), folder
}

// alwaysReady is a probe that succeeds at once.
func alwaysReady(t *testing.T) machine.Probe {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	t.Cleanup(server.Close)
	return machine.Probe{URL: server.URL}
}

func TestServicesStartInOrderOfNeed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order")
	first := machine.Service{Name: "first", Args: []string{"sh", "-c", "echo first >> " + file}, Ready: machine.Probe{Exit: true}}
	second := machine.Service{
		Name: "second", Args: []string{"sh", "-c", "echo second >> " + file + "; exec sleep 600"}, Needs: []string{"first"}, Ready: alwaysReady(t),
	}
	control, _ := startMachine(t, first, second)
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	await(t, file, "first\nsecond\n")
	want := []machine.ServiceStatus{{Name: "first", State: machine.Ready}, {Name: "second", State: machine.Ready}}
	if diff := cmp.Diff(want, statusWithoutPID(t, control)); diff != "" {
		t.Error(diff)
	}
}

func TestServiceThatEndsIsStartedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "starts")
	control, _ := startMachine(t, machine.Service{
		Name: "server", Args: []string{"sh", "-c", "echo start >> " + file + "; exec sleep 600"}, Ready: alwaysReady(t),
	})
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	await(t, file, "start\n")
	if err := control.Control(patient(t), machine.OpKill, "server"); err != nil {
		t.Fatal(err)
	}
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	await(t, file, "start\nstart\n")
	if got := statusWithoutPID(t, control)[0]; got.Restarts != 1 || got.State != machine.Ready {
		t.Errorf("after a crash: %+v, want one restart", got)
	}
}

func TestStoppedServiceStaysStoppedUntilStarted(t *testing.T) {
	control, _ := startMachine(t, machine.Service{Name: "server", Args: []string{"sleep", "600"}, Ready: alwaysReady(t)})
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second call has no effect
		if err := control.Control(patient(t), machine.OpStop, "server"); err != nil {
			t.Fatal(err)
		}
	}
	stopped, err := control.Status(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]machine.ServiceStatus{{Name: "server", State: machine.Stopped}}, stopped); diff != "" {
		t.Error(diff)
	}
	if err := control.Wait(patient(t)); err != nil {
		t.Errorf("waiting for a machine with a stopped service: %v", err)
	}
	if err := control.Control(patient(t), machine.OpKill, "server"); err == nil {
		t.Error("killing what does not run was no error")
	}
	if err := control.Control(patient(t), machine.OpStart, "server"); err != nil {
		t.Fatal(err)
	}
	if got := statusWithoutPID(t, control)[0].State; got != machine.Ready {
		t.Errorf("after the start the service is %s", got)
	}
}

func TestServiceThatIgnoresSIGTERMIsKilled(t *testing.T) {
	control, _ := startMachine(t, machine.Service{
		Name: "deaf", Args: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, Ready: alwaysReady(t), Grace: 100 * time.Millisecond,
	})
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	if err := control.Control(patient(t), machine.OpStop, "deaf"); err != nil {
		t.Fatal(err)
	}
	if got := statusWithoutPID(t, control)[0].State; got != machine.Stopped {
		t.Errorf("after the stop the service is %s", got)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	control, _ := startMachine(t, machine.Service{
		Name: "never", Args: []string{"sleep", "600"}, Ready: machine.Probe{Socket: filepath.Join(t.TempDir(), "none")},
	})
	ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
	defer cancel()
	if err := control.Wait(ctx); err == nil {
		t.Error("a service that is never ready was waited for")
	}
	if _, err := control.Status(patient(t)); err != nil {
		t.Errorf("the guest does not answer any more: %v", err)
	}
}

func TestOutputGoesToTheLog(t *testing.T) {
	control, folder := startMachine(t, machine.Service{Name: "talker", Args: []string{"sh", "-c", "echo out; echo err >&2"}, Ready: machine.Probe{Exit: true}})
	if err := control.Wait(patient(t)); err != nil {
		t.Fatal(err)
	}
	await(t, filepath.Join(folder, "talker.log"), "out\nerr\n")
}

func TestBadSpecsAreRefused(t *testing.T) {
	known := machine.Service{Name: "known", Args: []string{"true"}, Ready: machine.Probe{Exit: true}}
	for name, bad := range map[string]machine.Service{
		"program":    {Name: "x", Args: []string{"no-such-program"}},
		"need":       {Name: "x", Args: []string{"true"}, Needs: []string{"unknown"}},
		"later need": {Name: "x", Args: []string{"true"}, Needs: []string{"x"}},
	} {
		spec := machine.Spec{Path: os.Getenv("PATH"), Services: []machine.Service{known, bad}}
		if _, err := newServices(spec, newReaper(), nil); err == nil {
			t.Errorf("unknown %s was accepted", name)
		}
	}
}

// await waits until the file has the content.
func await(t *testing.T, file, want string) {
	t.Helper()
	err := harness.Poll(patient(t), func(context.Context) error {
		got, err := os.ReadFile(file)
		if err == nil && string(got) != want {
			err = fmt.Errorf("%s holds %q, want %q", filepath.Base(file), got, want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func statusWithoutPID(t *testing.T, control machine.Machine) []machine.ServiceStatus {
	t.Helper()
	list, err := control.Status(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].PID = 0
	}
	return list
}
