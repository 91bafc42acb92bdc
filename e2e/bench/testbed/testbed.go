// Package testbed is the environment of a bench of the agent: the agent as released, a real API server, and fake hosts of one machine.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tessera-gpu/tessera/e2e/bench/report"
	"github.com/tessera-gpu/tessera/e2e/bench/scratch"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// Machine is the machine of every host.
const Machine = "h100x8"

// Timeout limits every wait.
const Timeout = 2 * time.Minute

// Bed exists until Close. It is for one goroutine.
type Bed struct {
	*report.Report
	// Folder contains all files; it is removed with the bed.
	Folder scratch.Folder
	Plane  *harness.Plane
	// Agent and Hook are the programs as released.
	Agent, Hook string
	// AuditLog is the API server's log of reads and watches.
	AuditLog string

	hosts int
}

// Open builds the programs and starts an API server. It needs root.
func Open(ctx context.Context, r *report.Report) (b *Bed, err error) {
	if err := harness.CheckRoot(); err != nil {
		return nil, err
	}
	folder, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, folder.Close())
		}
	}()
	b = &Bed{Report: r, Folder: folder}
	r.Doing("building the agent")
	if b.Agent, err = b.Build(ctx, "./cmd/tessera-node", "-tags=grpcnotrace"); err != nil {
		return nil, err
	}
	if b.Hook, err = b.Build(ctx, "./cmd/tessera-hook"); err != nil {
		return nil, err
	}
	if err := harness.BuildDriver(ctx); err != nil {
		return nil, err
	}
	programs, err := harness.ClusterPrograms(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := folder.Sub("plane")
	if err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	b.AuditLog = filepath.Join(dir, "audit.log")
	r.Doing("starting an API server")
	b.Plane, err = harness.StartPlane(ctx, dir, programs, "--audit-policy-file="+policy, "--audit-log-path="+b.AuditLog, "--audit-log-maxsize=0")
	return b, err
}

// auditPolicy selects what AuditLog contains.
const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [get, list, watch]}, {level: None}]\n"

// Close ends the API server and removes the folder.
func (b *Bed) Close() error {
	b.Plane.Stop()
	return b.Folder.Close()
}

// Build builds a program of the project and returns its path; builds with different flags have different paths.
func (b *Bed) Build(ctx context.Context, pkg string, flags ...string) (string, error) {
	dir, err := os.MkdirTemp(b.Folder.Disk, "")
	if err != nil {
		return "", fmt.Errorf("make a folder for %s: %w", pkg, err)
	}
	program := filepath.Join(dir, filepath.Base(pkg))
	return program, harness.Build(ctx, program, append(append([]string{"-trimpath"}, flags...), pkg)...)
}

// Host creates a new host, which has the machine's files and the agent's settings; empty settings are the defaults.
func (b *Bed) Host(ctx context.Context, settings string) (*harness.Host, error) {
	b.hosts++
	dir, err := b.Folder.Sub(fmt.Sprint(b.hosts))
	if err != nil {
		return nil, err
	}
	h, err := harness.NewHost(ctx, b.Plane, dir, fmt.Sprintf("bench-%d", b.hosts), Machine)
	if err != nil {
		return nil, err
	}
	if settings != "" {
		if err := h.Configure(settings); err != nil {
			return nil, err
		}
	}
	return h, h.Install(ctx, Machine)
}

// Await waits for something on the host, no longer than Timeout; an error contains the end of the agent's log.
func (b *Bed) Await(ctx context.Context, h *harness.Host, what string, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err := harness.Poll(limited, try)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait for %s: %w\n%s", what, err, Tail(h.Log()))
	}
	return err
}

// Tail returns the end of a log.
func Tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4096):])
}
