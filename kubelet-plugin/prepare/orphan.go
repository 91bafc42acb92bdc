package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// DaemonUsers returns the claims that the MPS daemon serves.
func (p *Preparer) DaemonUsers(daemon string) ([]Ref, error) {
	records, err := p.others(Record{})
	if err != nil {
		return nil, err
	}
	var users []Ref
	for _, r := range activeRecords(records) {
		if r.uses(daemon) {
			users = append(users, r.Ref)
		}
	}
	return users, nil
}

// releaseOrphanDaemons stops the MPS daemons that serve no claim of this boot: those of claims before a reboot, and those whose records were
// lost.
func (p *Preparer) releaseOrphanDaemons(ctx context.Context) error {
	daemons, err := p.Daemons.List(ctx)
	if err != nil {
		return fmt.Errorf("list the MPS daemons: %w", err)
	}
	var errs []error
	for _, d := range daemons {
		if err := p.releaseOrphanDaemon(ctx, d); err != nil {
			errs = append(errs, fmt.Errorf("stop the orphaned MPS daemon %s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

// releaseOrphanDaemon stops the daemon unless a claim needs it, or its claim is locked by another call.
func (p *Preparer) releaseOrphanDaemon(ctx context.Context, d Daemon) error {
	if needed, err := p.needsDaemon(d); err != nil || needed {
		return err
	}
	release, free, err := p.lockDaemon(ctx, d)
	if err != nil || !free {
		return err
	}
	defer release()
	if needed, err := p.needsDaemon(d); err != nil || needed {
		return err
	}
	return p.Daemons.Release(ctx, d.Name)
}

// needsDaemon reports whether a record of this boot needs the daemon. A claim whose record cannot be read keeps its daemon.
func (p *Preparer) needsDaemon(d Daemon) (bool, error) {
	if d.ClaimUID != "" {
		r, err := p.loadRecord(Ref{UID: d.ClaimUID})
		return r.State == stateDamaged || r.BootID == p.BootID && r.uses(d.Name), err
	}
	records, err := p.others(Record{})
	return slices.ContainsFunc(records, func(r Record) bool { return r.uses(d.Name) }), err
}

// lockDaemon takes the lock that protects the daemon: that of its GPU, or that of its claim. It does not wait for the claim's lock and reports
// whether that was free.
func (p *Preparer) lockDaemon(ctx context.Context, d Daemon) (release func(), free bool, err error) {
	if d.ClaimUID == "" {
		release, err = p.locks.acquireGPUs(ctx, []string{d.GPU}, Ref{Name: d.Name})
		return release, true, err
	}
	claim := Ref{UID: d.ClaimUID}
	if err := claim.validate(); err != nil {
		return nil, false, err
	}
	held, free, err := p.locks.tryAcquireClaim(claim)
	if err != nil || !free {
		return nil, false, err
	}
	return held.releaseAndRemove, true, nil
}
