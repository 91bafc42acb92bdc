package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
)

// Reconcile corrects the state of every claim that no other call has locked:
//   - Claims in state Unpreparing and Preparing are released; kubelet calls again for the latter.
//   - Records of another boot are deleted.
//   - Prepared claims that are not running or held any more (Config.Claims) are released; the others are verified, and their CDI specs written again.
//   - A claim that kubelet has not unprepared is not released while a process uses its devices, or if that cannot be determined (InUse).
//   - Unreadable records are rebuilt.
//   - CDI specs and MPS daemons without a claim are removed.
//
// MIG devices that no record owns are not changed. Reconcile is called at the start of the agent, concurrently with calls of kubelet, and
// periodically, which retries what could not be destroyed. It returns the errors of all claims; an error of one claim does not affect others.
func (p *Preparer) Reconcile(ctx context.Context) error {
	claims, err := p.storedClaims()
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	running := p.Claims.Running(ctx)
	errs := make([]error, len(claims))
	var group sync.WaitGroup
	for i, claim := range claims {
		group.Go(func() {
			logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", claim.UID)
			if err := p.reconcile(klog.NewContext(ctx, logger), claim, running); err != nil {
				errs[i] = fmt.Errorf("reconcile claim %s (%s): %w", claim, claim.UID, err)
			}
		})
	}
	group.Wait()
	p.Blocked(countUsage(errs))
	return errors.Join(append(errs, p.releaseOrphanDaemons(ctx))...)
}

// storedClaims returns every claim that left a record or a spec on the node.
func (p *Preparer) storedClaims() ([]Ref, error) {
	records, err := p.Records.List()
	if err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	specs, err := p.Specs.List()
	if err != nil {
		return nil, fmt.Errorf("list the CDI specs: %w", err)
	}
	var claims []Ref
	recorded := map[string]bool{}
	for _, r := range records {
		claims = append(claims, r.Ref)
		recorded[r.UID] = true
	}
	for _, uid := range specs {
		if !recorded[uid] {
			claims = append(claims, Ref{UID: uid})
		}
	}
	return claims, nil
}

// reconcile corrects the state of one claim, unless another call has its lock. The running claims were read before.
func (p *Preparer) reconcile(ctx context.Context, claim Ref, running map[Ref]bool) error {
	if err := claim.validate(); err != nil {
		return err
	}
	held, free, err := p.locks.tryAcquireClaim(claim)
	if err != nil || !free {
		return err
	}
	kept := true
	defer func() { held.releaseAfter(!kept) }()
	r, err := p.loadRecord(claim)
	if err != nil {
		return err
	}
	if r.State == stateDamaged {
		r, err = p.rebuildRecord(ctx, r)
		switch {
		case errors.Is(err, ErrNoClaim):
			// Perhaps only the name in the record is damaged, and the claim's pods run. kubelet's next call has the name.
			return nil
		case err != nil:
			return err
		}
	}
	keep, doubt := p.shouldKeep(ctx, r, running)
	unlock, err := p.locks.acquireGPUs(ctx, r.touched(), r.Ref)
	if err != nil {
		return errors.Join(doubt, err)
	}
	defer unlock()
	if keep {
		answers, err := p.ensurePrepared(ctx, r)
		if err == nil {
			p.Reconciled(r.Ref, answers)
		}
		return errors.Join(doubt, err)
	}
	kept = false // also if a step panics
	err = p.releaseUnused(ctx, r)
	kept = err != nil
	return errors.Join(doubt, err)
}

// releaseUnused releases the claim of the record unless it is in use (InUse). The caller holds the locks.
func (p *Preparer) releaseUnused(ctx context.Context, r Record) error {
	if err := p.checkUnused(ctx, r); err != nil {
		return err
	}
	return p.releaseClaim(ctx, r)
}

// shouldKeep reports whether the claim is kept: it was prepared in this boot, or its record is damaged, and it is one of the running ones or may be in
// use. If that cannot be determined, it is kept and the error returned.
func (p *Preparer) shouldKeep(ctx context.Context, r Record, running map[Ref]bool) (bool, error) {
	switch {
	case r.State == stateDamaged:
		return true, nil
	case r.State != StatePrepared, r.BootID != p.BootID:
		return false, nil
	case running[r.Ref]:
		return true, nil
	}
	held, err := p.Claims.Held(ctx, r.Ref)
	if err != nil {
		return true, fmt.Errorf("check whether the claim is held: %w", err)
	}
	return held, nil
}
