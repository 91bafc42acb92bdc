package gpunode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Manager is the field manager of status.agent.
const Manager = "tessera-node"

// requestTimeout limits a request, with the repetitions of the client. The API server ends a write after as long.
const requestTimeout = time.Minute

// reporter writes status.agent during one period of leadership.
type reporter struct {
	*Controller
	// written is the status that was written last, stored what the API server made of it: a CRD of an older release drops fields that it
	// does not have, which is no reason to write again.
	written, stored *v1alpha1.AgentStatus
	// next is when a write is tried again after an error, delay the pause before it.
	next  time.Time
	delay time.Duration
	// logged are the last errors, by message.
	logged map[string]string
}

// report writes status.agent if the GPUNode has another one.
func (r *reporter) report(ctx context.Context, node *v1alpha1.GPUNode) {
	if time.Now().Before(r.next) {
		return
	}
	status := r.status(ctx, node)
	same := equality.Semantic.DeepEqual
	if same(node.Status.Agent, &status) || same(r.written, &status) && same(node.Status.Agent, r.stored) {
		return
	}
	written, err := r.applyStatus(ctx, status)
	switch {
	case err == nil:
		r.delay = 0
		r.written, r.stored = &status, written.Status.Agent
		r.updateNode(written)
	case apierrors.IsNotFound(err):
		return // the watch reports the deletion
	case ctx.Err() != nil:
		return
	default:
		r.delay = min(max(2*r.delay, minRetryDelay), maxRetryDelay)
		r.next = time.Now().Add(r.delay)
	}
	r.logError(ctx, "GPUNode not written, retrying", err)
}

// status returns the status that the agent should have.
func (r *reporter) status(ctx context.Context, node *v1alpha1.GPUNode) v1alpha1.AgentStatus {
	status := r.config.Status(ctx)
	if node.Status.Agent != nil && !r.config.Known() {
		status.Faults = node.Status.Agent.Faults
	}
	m, err := r.config.Maintenance.Advance(ctx)
	r.logError(ctx, "State of maintenance not determined completely, retrying", err)
	status.Maintenance, status.PreparedClaims, status.Remediations = m.Maintenance, m.Prepared, m.Remedies
	return status
}

// applyStatus writes status.agent by server-side apply.
func (r *reporter) applyStatus(ctx context.Context, status v1alpha1.AgentStatus) (*v1alpha1.GPUNode, error) {
	type statusPart struct {
		Agent v1alpha1.AgentStatus `json:"agent"`
	}
	text, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string `json:"metadata"`
		Status          statusPart        `json:"status"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		Metadata: map[string]string{"name": r.config.Node},
		Status:   statusPart{Agent: status},
	})
	if err != nil {
		return nil, fmt.Errorf("write status.agent: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := r.config.Client.Patch(ctx, r.config.Node, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: Manager, Force: new(true)}, "status")
	if err != nil {
		return nil, fmt.Errorf("write status.agent: %w", err)
	}
	return node, nil
}

// logError logs an error unless it is the last one that was logged with the message.
func (r *reporter) logError(ctx context.Context, message string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.logged[message] {
		klog.FromContext(ctx).Error(err, message, "node", r.config.Node)
	}
	r.logged[message] = text
}
