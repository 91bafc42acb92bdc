package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// minLimit is the lowest limit. The driver counts bytes; below a mebibyte, no context can be created.
const minLimit = 1 << 20

// Resize is a change of the memory limit of a prepared claim.
type Resize struct {
	// Claim is the UID of the claim.
	Claim string `json:"claim"`
	// Request is the request of the claim whose shares get the limit; empty if only one has shares.
	Request string `json:"request,omitempty"`
	// Bytes is what each container can allocate for each share of the request from now on.
	Bytes uint64 `json:"bytes"`
}

// Resized is what Resize has changed.
type Resized struct {
	// Request is the request whose shares have the limit, BeforeBytes the former limit, the highest one if they differ.
	Request     string `json:"request"`
	BeforeBytes uint64 `json:"beforeBytes"`
	// Containers is the number of running containers whose limits were changed.
	Containers int `json:"containers"`
	// Exceeded are the GPUs on which the limits of all claims are more than what they can have together.
	Exceeded []Exceeded `json:"exceeded,omitempty"`
}

// Exceeded is a GPU whose claims have limits that are more together than what there is: an allocation below a limit can fail.
type Exceeded struct {
	GPU            string `json:"gpu"`
	LimitBytes     uint64 `json:"limitBytes"`
	ShareableBytes uint64 `json:"shareableBytes"`
}

// Resize changes the memory limit of the shares of a request, for all running containers of the claim and those that start later, until the claim is
// released. It can be raised up to what the claim's parameters permit. It is refused, and changes nothing, if a container has allocated more. An agent that is
// killed meanwhile leaves the former limit or the new one, and sets the limits of the containers to it when it starts again.
func (s *Server) Resize(ctx context.Context, r Resize) (Resized, error) {
	stored, err := s.Records.Load(r.Claim)
	if err != nil {
		return Resized{}, fmt.Errorf("claim %s: %w: %w", r.Claim, errNotPrepared, err)
	}
	result, err := s.resize(ctx, stored.Ref, r)
	if err != nil {
		return Resized{}, fmt.Errorf("change the memory limit of claim %s: %w", stored.Ref, err)
	}
	s.Resized(stored.Ref, fmt.Sprintf("each container can allocate %s of GPU memory for each share of request %s, before it was %s",
		quantity(r.Bytes), result.Request, quantity(result.BeforeBytes)))
	return result, nil
}

func (s *Server) resize(ctx context.Context, claim prepare.Ref, r Resize) (Resized, error) {
	before, unlock, err := s.Claims.LockPrepared(ctx, claim)
	if err != nil {
		return Resized{}, err
	}
	defer unlock()
	result := Resized{Request: r.Request}
	positions, err := sharesOf(before, &result.Request)
	if err != nil {
		return Resized{}, err
	}
	after := before
	after.Wanted = slices.Clone(before.Wanted)
	for _, i := range positions {
		w := &after.Wanted[i]
		if err := s.permits(*w, r.Bytes); err != nil {
			return Resized{}, err
		}
		result.BeforeBytes = max(result.BeforeBytes, limitOf(*w, s.limiterOf(w.Use.GPU)))
		w.MemoryLimit = r.Bytes
	}
	if result.Containers, err = s.change(ctx, before, after); err != nil {
		return Resized{}, err
	}
	result.Exceeded, err = s.exceeded(after)
	return result, err
}

// sharesOf returns the positions of the claim's shares for the request. If it is empty, it becomes the only one with shares.
func sharesOf(r prepare.Record, request *string) ([]int, error) {
	var positions []int
	var requests []string
	for i, w := range r.Wanted {
		if w.Admin || !w.Use.Shape.Shared() {
			continue
		}
		if !slices.Contains(requests, w.Request) {
			requests = append(requests, w.Request)
		}
		if *request == "" || *request == w.Request {
			positions = append(positions, i)
		}
	}
	switch {
	case len(requests) == 0:
		return nil, errors.New("it has no shares: whole GPUs and MIG devices have no memory limit")
	case len(positions) == 0:
		return nil, fmt.Errorf("it has no shares for a request %q: its requests with shares are %s", *request, strings.Join(requests, ", "))
	case *request == "" && len(requests) > 1:
		return nil, fmt.Errorf("it has shares for several requests: name one of %s", strings.Join(requests, ", "))
	}
	*request = r.Wanted[positions[0]].Request
	return positions, nil
}

// permits returns why a share cannot have the limit.
func (s *Server) permits(w prepare.Wanted, bytes uint64) error {
	limiter := s.limiterOf(w.Use.GPU)
	most := max(w.Use.Share.MemoryBytes, uint64(w.Settings.MemoryLimitBytes))
	switch {
	case !limiter.Limits(w.Use.Shape):
		return fmt.Errorf("the memory of device %s is not limited: its attribute memoryEnforced is none: %w", w.Device, gpu.ErrUnsupported)
	case bytes < minLimit:
		return fmt.Errorf("a limit of %d bytes: must be at least %s", bytes, quantity(minLimit))
	case bytes > most:
		return fmt.Errorf("a limit of %s: must be at most %s, the larger of what it requests and memoryLimit in its parameters, which a claim cannot change", quantity(bytes), quantity(most))
	}
	return nil
}

// change changes the limits of the claim's containers and its record, and returns the number of containers. After an error, they are as before. The record has the
// higher one of both limits until the containers have the new one: what restore sets is never below what is allocated.
func (s *Server) change(ctx context.Context, before, after prepare.Record) (count int, err error) {
	upper := after
	upper.Wanted = slices.Clone(after.Wanted)
	lowers := false
	for i, w := range before.Wanted {
		if limiter := s.limiterOf(w.Use.GPU); limitOf(w, limiter) > limitOf(after.Wanted[i], limiter) {
			upper.Wanted[i], lowers = w, true
		}
	}
	defer func() {
		if err != nil {
			s.undo(context.WithoutCancel(ctx), before, upper)
		}
	}()
	if err := s.Records.Save(upper); err != nil {
		return 0, err
	}
	if count, err = s.setAll(ctx, after); err != nil || !lowers {
		return count, err
	}
	if err := s.Records.Save(after); err != nil {
		return 0, err
	}
	// A container that started meanwhile has the former limit, if it read the record before.
	return s.setAll(ctx, after)
}

// undo sets the former limits again, in the order of change.
func (s *Server) undo(ctx context.Context, before, upper prepare.Record) {
	err := s.Records.Save(upper)
	if err == nil {
		_, err = s.setAll(ctx, before)
	}
	if err == nil {
		err = s.Records.Save(before)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The former GPU memory limit of a claim is not in effect", "claim", klog.KRef(before.Namespace, before.Name))
	}
}

// setAll sets the limits of the claim's containers as if the record was stored, and returns their number.
func (s *Server) setAll(ctx context.Context, r prepare.Record) (int, error) {
	containers, err := s.containersOf(ctx, r.UID)
	for _, c := range containers {
		err = errors.Join(err, s.setChanged(ctx, c, r))
	}
	return len(containers), err
}

// containersOf returns the running containers that have devices of the claim.
func (s *Server) containersOf(ctx context.Context, uid string) ([]hook.LimitRequest, error) {
	all, err := s.containers(ctx)
	return slices.DeleteFunc(all, func(r hook.LimitRequest) bool { return !slices.Contains(claimsOf(r), uid) }), err
}

// setChanged sets the limits of a container as if the record was stored, unless its processes have allocated more.
func (s *Server) setChanged(ctx context.Context, c hook.LimitRequest, r prepare.Record) error {
	limits, err := s.limitsOf(c, map[string]prepare.Record{r.UID: r})
	if errors.Is(err, errNotPrepared) {
		return nil // another claim of the container is released: it has ended
	}
	if err != nil {
		return err
	}
	for _, u := range s.usesOf(c) {
		i := slices.IndexFunc(limits, func(l limit) bool { return l.gpu == u.GPU })
		if i < 0 {
			continue
		}
		_, used, err := s.Driver.MemoryLimit(ctx, u.GPU, s.folder(c))
		if err != nil {
			return err
		}
		if used > limits[i].bytes {
			return fmt.Errorf("container %q of pod %q has allocated %s of %s, and could have %s: %w", u.Container, u.Pod, quantity(used), u.GPU, quantity(limits[i].bytes), gpu.ErrBusy)
		}
	}
	return s.set(ctx, c.Group, limits)
}

// exceeded returns the GPUs of the claim whose claims have higher limits together than what they can have.
func (s *Server) exceeded(changed prepare.Record) ([]Exceeded, error) {
	records, err := s.Records.List()
	if err != nil {
		return nil, err
	}
	together := map[string]uint64{}
	for _, r := range records {
		for _, w := range r.Wanted {
			if !w.Admin && w.Use.Shape.Shared() {
				together[w.Use.GPU] = plus(together[w.Use.GPU], limitOf(w, s.limiterOf(w.Use.GPU)))
			}
		}
	}
	var all []Exceeded
	for _, w := range changed.Wanted {
		g, err := s.Inventory.Node().Find(w.Use.GPU)
		known := slices.ContainsFunc(all, func(e Exceeded) bool { return e.GPU == w.Use.GPU })
		if err == nil && !known && together[w.Use.GPU] > g.Shareable() {
			all = append(all, Exceeded{GPU: w.Use.GPU, LimitBytes: together[w.Use.GPU], ShareableBytes: g.Shareable()})
		}
	}
	return all, nil
}

// quantity returns a number of bytes as text, such as 12Gi.
func quantity(bytes uint64) string {
	if bytes == gpu.NoMemoryLimit {
		return "all"
	}
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}
