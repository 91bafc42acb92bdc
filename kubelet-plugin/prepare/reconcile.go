package prepare

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
)

// Reconcile brings every claim of the node in order that nobody is working on: it finishes taking back
// what is on its way out, takes back what was never finished and so is in nobody's use, forgets
// claims of another boot and takes back those that are not held any more (Config.Claims), verifies the
// claims that are ready and writes their CDI specs again, writes records again that could not be read,
// and removes specs and MPS daemons without a claim. Instances that no record owns are not touched.
//
// It is called at the start of an agent, beside the calls of kubelet, and from time to time: that
// retries what could not be destroyed. It returns what went wrong, claim by claim; one claim's trouble
// does not keep the others from being settled.
func (p *Preparer) Reconcile(ctx context.Context) error {
	claims, err := p.storedClaims()
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	errs := make([]error, len(claims))
	var group sync.WaitGroup
	for i, claim := range claims {
		group.Go(func() {
			logger := klog.FromContext(ctx).WithValues("claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", claim.UID)
			if err := p.reconcile(klog.NewContext(ctx, logger), claim); err != nil {
				errs[i] = fmt.Errorf("reconcile claim %s (%s): %w", claim, claim.UID, err)
			}
		})
	}
	group.Wait()
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

// reconcile brings one claim in order, unless somebody else is at work on it.
func (p *Preparer) reconcile(ctx context.Context, claim Ref) error {
	if err := claim.validate(); err != nil {
		return err
	}
	held, free, err := p.locks.tryAcquireClaim(claim)
	if err != nil || !free {
		return err
	}
	defer held.releaseAndRemove()
	r, err := p.loadRecord(claim)
	if err != nil {
		return err
	}
	if r.State == stateDamaged {
		r, err = p.rebuildRecord(ctx, r)
		switch {
		case errors.Is(err, ErrNoClaim):
			// It may only be its name that is damaged, and its pods may run: kubelet knows the name and
			// says it with its next call.
			return nil
		case err != nil:
			return err
		}
	}
	keep, doubt := p.shouldKeep(ctx, r)
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
	return p.releaseClaim(ctx, r)
}

// shouldKeep reports whether the claim stays as it is: it is ready, or was before its record was damaged,
// in this boot, and may be in use. In doubt, which is the error, it stays.
func (p *Preparer) shouldKeep(ctx context.Context, r Record) (bool, error) {
	switch {
	case r.State == stateDamaged:
		return true, nil
	case r.State != StatePrepared, r.BootID != p.BootID:
		return false, nil
	}
	held, err := p.Claims.Held(ctx, r.Ref)
	if err != nil {
		return true, fmt.Errorf("check whether the claim is held: %w", err)
	}
	return held, nil
}
