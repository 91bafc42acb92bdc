package gpunode

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
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

// Config is what a Keeper works with. Everything is required.
type Config struct {
	// Node is the name of the Kubernetes node, and so of the GPUNode.
	Node   string
	Client Client
	Gate   *Gate
	// Facts returns what the agent knows now; it is called every second and asks nobody. Maintenance, Prepared and Remedies are the keeper's.
	Facts func(ctx context.Context) v1alpha1.AgentStatus
	// Known reports whether the node's hardware has been read, or found to be without a driver. Until then the faults that the GPUNode tells stay.
	Known func() bool
	// Prepared counts the claims that have a record.
	Prepared func() (int, error)
	// Remedies is what it takes to obey orders about single GPUs.
	Remedies Remedies
	// Closed is called when the GPUs begin to be out of service, and when the last call has ended that was let through before: what
	// is half prepared should be taken back.
	Closed func()
}

// Keeper keeps the Gate as the GPUNode wants it and the GPUNode's status.agent as the agent is.
type Keeper struct {
	config Config
	news   chan struct{}

	mu sync.Mutex
	// seen is whether the GPUNode was looked for with success, node is what was found.
	seen bool
	node *v1alpha1.GPUNode
	// resets are those of this process, by the ID of the remedy.
	resets map[string]*reset
	// running are the resets in progress.
	running sync.WaitGroup
}

// New returns a keeper that has not started.
func New(config Config) *Keeper {
	return &Keeper{config: config, news: make(chan struct{}, 1), resets: map[string]*reset{}}
}

// How often it is looked whether something is to be told, and whether calls have ended that were let through before.
const (
	period    = time.Second
	impatient = 50 * time.Millisecond
)

// Run works until ctx ends; the agent calls it while it leads, and may again later. The API server may be away and the GPUNode or
// its kind missing for as long as they like: Run returns no error. A reset that has begun is waited for.
func (k *Keeper) Run(ctx context.Context) error {
	k.mu.Lock()
	k.seen, k.node = false, nil
	k.mu.Unlock()
	// What stands there holds until the GPUNode was read: another agent may have written it since this one was started.
	if word, err := k.config.Gate.Word(); err == nil {
		k.config.Remedies.Hold(word.Held())
	}
	var parts sync.WaitGroup
	parts.Go(func() { k.follow(ctx) })
	parts.Go(func() { k.keep(ctx) })
	parts.Wait()
	k.running.Wait()
	return nil
}

// keep obeys and tells, when something happens and from time to time.
func (k *Keeper) keep(ctx context.Context) {
	var t term
	for {
		pause := period
		if node, seen := k.latest(); seen {
			before := t.word
			if !t.set {
				before, _ = k.config.Gate.Word() // one that cannot be read is written anew
			}
			t.obey(ctx, k, closureOf(node, k.config.Remedies.Group, before))
			if node != nil {
				t.tell(ctx, k, node)
			}
			if t.closing() {
				pause = impatient
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-k.news:
		case <-time.After(pause):
		}
	}
}

// term is what is known in one stretch of leading.
type term struct {
	// set is whether the gate has the word, quiet whether nobody passes it any more who should not.
	set, quiet bool
	word       Closure
	// silent are the holds under which nobody passes any more who should not, by ID.
	silent map[string]Hold
	// said is what was written last, kept what the API server made of it: one of an older release drops fields that it does not know.
	said, kept *v1alpha1.AgentStatus
	// trouble is what was logged last, next is when it is tried again to write the status, after a pause.
	trouble string
	next    time.Time
	pause   time.Duration
}

// tell writes status.agent if it is not what the agent would say.
func (t *term) tell(ctx context.Context, k *Keeper, node *v1alpha1.GPUNode) {
	if time.Now().Before(t.next) {
		return
	}
	status := t.status(ctx, k, node)
	same := equality.Semantic.DeepEqual
	if same(node.Status.Agent, &status) || same(t.said, &status) && same(node.Status.Agent, t.kept) {
		return
	}
	written, err := k.apply(ctx, status)
	switch {
	case err == nil:
		t.pause, t.trouble = 0, ""
		t.said, t.kept = &status, written.Status.Agent
		k.written(written)
	case apierrors.IsNotFound(err): // the watch is about to say so
	case ctx.Err() == nil:
		t.pause = min(max(2*t.pause, shortestPause), longestPause)
		t.next = time.Now().Add(t.pause)
		t.complain(ctx, "The GPUNode cannot be written, trying again", err)
	}
}

// status returns what the agent says now.
func (t *term) status(ctx context.Context, k *Keeper, node *v1alpha1.GPUNode) v1alpha1.AgentStatus {
	status := k.config.Facts(ctx)
	if node.Status.Agent != nil && !k.config.Known() {
		status.Faults = node.Status.Agent.Faults
	}
	status.Remedies = t.remedies(ctx, k)
	if !t.set || !t.quiet || t.word.ID == "" {
		return status
	}
	status.Maintenance = t.word.ID
	// Counted after the last call ended that was let through: the number only falls from here on.
	if count, err := k.config.Prepared(); err != nil {
		t.complain(ctx, "The prepared claims cannot be counted, trying again", err)
	} else {
		status.Prepared = new(int32(count)) //nolint:gosec // a node has a few thousand claims at most
	}
	return status
}

// apply writes status.agent by server-side apply.
func (k *Keeper) apply(ctx context.Context, status v1alpha1.AgentStatus) (*v1alpha1.GPUNode, error) {
	type statusPart struct {
		Agent v1alpha1.AgentStatus `json:"agent"`
	}
	text, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        map[string]string `json:"metadata"`
		Status          statusPart        `json:"status"`
	}{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		Metadata: map[string]string{"name": k.config.Node},
		Status:   statusPart{Agent: status},
	})
	if err != nil {
		return nil, fmt.Errorf("write status.agent: %w", err)
	}
	node, err := k.config.Client.Patch(ctx, k.config.Node, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: Manager, Force: new(true)}, "status")
	if err != nil {
		return nil, fmt.Errorf("write status.agent: %w", err)
	}
	return node, nil
}

// complain logs trouble that differs from the last.
func (t *term) complain(ctx context.Context, what string, err error) {
	if text := err.Error(); text != t.trouble {
		klog.FromContext(ctx).Error(err, what)
		t.trouble = text
	}
}
