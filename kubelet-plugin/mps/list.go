package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// listPeriod is the minimum time between two lists of the node's pods; the maximum is twice as long. A daemon has its
// folder from before the creation of its pod until its end, so that only the pods of folders that others removed, as a
// boot does, are found later.
const listPeriod = 15 * time.Minute

// List returns the daemons of the node with Name, GPU and ClaimUID, ordered by name: those that have a folder, and those
// that had a pod when the API server was last called, at most twice listPeriod ago.
func (p *Pods) List(ctx context.Context) ([]prepare.Daemon, error) {
	daemons, err := p.withPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	states, err := p.States()
	if err != nil {
		return nil, err
	}
	for _, s := range states {
		daemons = append(daemons, prepare.Daemon{Name: s.Name, GPU: s.GPU, ClaimUID: s.ClaimUID})
	}
	slices.SortStableFunc(daemons, func(a, b prepare.Daemon) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(daemons, func(a, b prepare.Daemon) bool { return a.Name == b.Name }), nil
}

// withPods returns the daemons of the node that have a pod and were not released since it was listed.
func (p *Pods) withPods(ctx context.Context) ([]prepare.Daemon, error) {
	p.mu.Lock()
	listed, until := slices.Clone(p.listed), p.until
	p.mu.Unlock()
	if time.Now().Before(until) {
		return listed, nil
	}
	pods, err := p.pods().List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: daemonName, nodeLabel: labelValue(p.Node)}}),
		// The API server has an index of pods by node.
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.Node).String(),
	})
	if err != nil {
		return nil, err
	}
	listed = nil
	for _, pod := range pods.Items {
		listed = append(listed, prepare.Daemon{Name: pod.Labels[instanceLabel], GPU: pod.Labels[gpuLabel], ClaimUID: pod.Labels[claimLabel]})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed, p.until = listed, time.Now().Add(listPeriod+rand.N(listPeriod)) //nolint:gosec // it only spreads the requests of the nodes
	return slices.Clone(listed), nil
}

// Processes implements prepare.Daemons: the processes that hold the daemon's lock. It requires the host's PID namespace.
func (p *Pods) Processes(name string) ([]int, error) {
	file, err := os.Open(filepath.Join(p.folder(name), lockName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the processes of MPS daemon %s: %w", name, err)
	}
	pids, err := holders(file)
	return pids, errors.Join(err, file.Close())
}

// States returns the states that the supervisors of the node report, ordered by name. It reads only the folders and may
// be called often.
func (p *Pods) States() ([]State, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	var states []State
	for _, entry := range entries {
		c, configured := read[configuration](p.folder(entry.Name()), configName)
		s, serves, err := p.observe(entry.Name())
		if err != nil {
			klog.Background().V(2).Info("The state of an MPS daemon cannot be read", "name", entry.Name(), "err", err)
		}
		if configured != nil {
			if c = s.Config; c.Name == "" {
				continue // the daemon was never configured
			}
		}
		states = append(states, State{
			Name: entry.Name(), GPU: c.GPU, ClaimUID: c.ClaimUID, Serving: serves, Since: s.Since,
			Restarts: s.Restarts, LastError: s.LastError, LastErrorAt: s.LastErrorAt,
		})
	}
	return states, nil
}
