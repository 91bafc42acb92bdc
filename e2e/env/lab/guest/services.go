package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// services are the programs of a machine in the order of the spec.
type services []*service

// newServices checks that every program exists and that every service needs earlier services only.
func newServices(spec machine.Spec, r *reaper, logs *os.Root) (services, error) {
	var list services
	env := []string{"PATH=" + spec.Path, "HOME=/root", "HOSTNAME=" + spec.Name}
	for _, wanted := range spec.Services {
		path, err := find(wanted.Args[0], spec.Path)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", wanted.Name, err)
		}
		s := &service{
			Service: wanted, path: path, env: env, reaper: r, logs: logs,
			wanted: true, state: machine.Waiting, changed: make(chan struct{}),
		}
		for _, name := range wanted.Needs {
			need, err := list.named(name)
			if err != nil {
				return nil, fmt.Errorf("service %s needs: %w", wanted.Name, err)
			}
			s.needs = append(s.needs, need)
		}
		list = append(list, s)
	}
	return list, nil
}

func (l services) named(name string) (*service, error) {
	for _, s := range l {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no service %q", name)
}

func (l services) start() {
	for _, s := range l {
		go s.run(context.Background())
	}
}

// stop stops the services in reverse order.
func (l services) stop() {
	for i := len(l) - 1; i >= 0; i-- {
		l[i].stop(context.Background())
	}
}

func (l services) status() []machine.ServiceStatus {
	var list []machine.ServiceStatus
	for _, s := range l {
		list = append(list, s.status())
	}
	return list
}

// find looks up a program in a PATH of the new root.
func find(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		if unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("no program %s in %s", name, path)
}
