package prepare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"
)

// Reconcile corrects the state of every claim that no other call has locked:
//   - Claims in state Unpreparing and Preparing are released; kubelet calls again for the latter.
//   - Records of another boot are deleted.
//   - Prepared claims that are not running or held any more (Config.Claims) are released; the others are verified, and their CDI specs written again.
//   - A claim that kubelet has not unprepared is not released while a process uses its devices, or if that cannot be determined (InUse).
//   - Unreadable records are rebuilt from the claim; if it is deleted, the MIG devices that they name are destroyed, as with a claim that is not held.
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
	damaged, err := p.Records.Unreadable()
	if err != nil {
		return nil, fmt.Errorf("list the unreadable records: %w", err)
	}
	for _, uid := range append(specs, damaged...) {
		if !recorded[uid] {
			recorded[uid] = true
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
	r, verdict, doubt := p.judge(ctx, r, running)
	if verdict == leave {
		return doubt
	}
	unlock, err := p.locks.acquireGPUs(ctx, r.touched(), r.Ref)
	if err != nil {
		return errors.Join(doubt, err)
	}
	defer unlock()
	if verdict == keep {
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

// verdict is what Reconcile does with a claim.
type verdict int

const (
	// leave changes nothing: kubelet's next call does.
	leave verdict = iota
	// keep verifies the claim and writes its spec again.
	keep
	// release releases the claim if it is unused.
	release
)

// judge decides about the claim of the record, which is rebuilt if it is damaged. A claim of this boot that is one of the running ones or may be in use is
// kept. The error is why that cannot be determined.
func (p *Preparer) judge(ctx context.Context, r Record, running map[Ref]bool) (Record, verdict, error) {
	switch {
	case r.State == stateDamaged:
		return p.judgeDamaged(ctx, r)
	case r.State != StatePrepared, r.BootID != p.BootID:
		return r, release, nil
	case running[r.Ref]:
		return r, keep, nil
	}
	held, err := p.Claims.Held(ctx, r.Ref)
	switch {
	case err != nil:
		return r, keep, fmt.Errorf("check whether the claim is held: %w", err)
	case held:
		return r, keep, nil
	}
	return r, release, nil
}

// judgeDamaged is judge for a record that is unreadable.
func (p *Preparer) judgeDamaged(ctx context.Context, r Record) (Record, verdict, error) {
	rebuilt, err := p.rebuildRecord(ctx, r)
	switch {
	case err == nil:
		specs, err := p.Specs.List()
		if err != nil || !slices.Contains(specs, r.UID) {
			return r, leave, err // a claim without a spec has no containers
		}
		return rebuilt, keep, nil
	case !errors.Is(err, ErrNoClaim):
		return r, leave, err
	}
	// Perhaps only the name in the record is damaged, and the claim's pods run: kubelet has the claim then, and its next call has the name.
	held, err := p.Claims.Held(ctx, r.Ref)
	if held {
		return r, leave, err
	}
	if r, err = p.recoverRecord(ctx, r); err != nil {
		return r, leave, err
	}
	return r, release, nil
}
