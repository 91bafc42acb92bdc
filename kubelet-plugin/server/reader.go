package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// claimGoneGrace is how long a claim must be missing in the API server before the node considers to release it without a call of kubelet. kubelet
// unprepares a claim within minutes after its last pod.
const claimGoneGrace = 10 * time.Minute

// Reader reads claims as the API server has them. It implements prepare.Claims and is safe for
// concurrent use.
type Reader struct {
	driver    string
	client    kubernetes.Interface
	inventory prepare.Inventory
	kubelet   Consumers

	mutex sync.Mutex
	// gone are the claims that the API server does not have, by UID, with the time of the first read without them.
	gone map[string]time.Time
}

// Consumers reports which claims kubelet has.
type Consumers interface {
	// Has reports whether containers of the claim may exist.
	Has(ctx context.Context, claim prepare.Ref) (bool, error)
	// Running returns the claims that kubelet has prepared for pods that it still runs.
	Running(ctx context.Context) (map[prepare.Ref]bool, error)
}

// NewReader returns a reader of claims for the driver. The inventory resolves names of devices.
func NewReader(driver string, client kubernetes.Interface, inventory prepare.Inventory, kubelet Consumers) *Reader {
	return &Reader{driver: driver, client: client, inventory: inventory, kubelet: kubelet, gone: map[string]time.Time{}}
}

// Read returns the devices of this driver that an allocated claim holds, and how they are to be
// prepared. Its error is for the claim's user.
func (r *Reader) Read(object *resourceapi.ResourceClaim) (prepare.Claim, error) {
	claim := prepare.Claim{Ref: prepare.Ref{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name}}
	node := r.inventory.Node()
	var devices []params.Device
	for _, result := range object.Status.Allocation.Devices.Results {
		if result.Driver != r.driver {
			continue
		}
		use, err := wire.Decode(result, node, wire.Options{Driver: r.driver})
		if err != nil {
			return prepare.Claim{}, fmt.Errorf("read claim %s: %w", claim.Ref, err)
		}
		wanted := prepare.Wanted{
			Result: prepare.Result{Request: result.Request, Pool: result.Pool, Device: result.Device},
			Use:    use,
			Admin:  result.AdminAccess != nil && *result.AdminAccess,
		}
		if result.ShareID != nil {
			wanted.ShareID = string(*result.ShareID)
		}
		claim.Wanted = append(claim.Wanted, wanted)
		devices = append(devices, deviceOf(result.Request, use, node))
	}
	settings, err := params.Resolve(params.Configs(object), r.driver, devices)
	if err != nil {
		return prepare.Claim{}, fmt.Errorf("read claim %s: %w", claim.Ref, err)
	}
	for i := range claim.Wanted {
		claim.Wanted[i].Settings = settings[i]
	}
	return claim, nil
}

// deviceOf returns a device for params.Resolve.
func deviceOf(request string, use gpu.Device, node gpu.Node) params.Device {
	d := params.Device{Request: request, Shape: use.Shape}
	if g, err := node.Find(use.GPU); err == nil && use.Shape != gpu.MIG {
		d.UUID = g.UUID
	}
	return d
}

// Running implements prepare.Claims: the claims of pods that kubelet runs. It makes no request to the API server. If kubelet cannot be
// read, there are none.
func (r *Reader) Running(ctx context.Context) map[prepare.Ref]bool {
	running, err := r.kubelet.Running(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Claims of running pods not read, all claims are read from the API server", "reason", err.Error())
	}
	return running
}

// Allocated reads the claim from the API server; prepare.ErrNoClaim if it is deleted, was replaced or is not allocated.
func (r *Reader) Allocated(ctx context.Context, ref prepare.Ref) (prepare.Claim, error) {
	object, err := r.object(ctx, ref, metav1.GetOptions{})
	if err != nil {
		return prepare.Claim{}, err
	}
	return r.Read(object)
}

// Held reports whether the claim may still be in use: true until it was missing in the API server for claimGoneGrace and kubelet does not have it
// either. The error is InUse if only kubelet has it, or if kubelet cannot be read. A claim that the API server's cache has costs no read of its storage.
func (r *Reader) Held(ctx context.Context, ref prepare.Ref) (bool, error) {
	_, err := r.object(ctx, ref, metav1.GetOptions{ResourceVersion: anyVersion})
	if errors.Is(err, prepare.ErrNoClaim) { // or the cache does not have it yet
		_, err = r.object(ctx, ref, metav1.GetOptions{})
	}
	gone := errors.Is(err, prepare.ErrNoClaim)
	if err != nil && !gone {
		return true, err
	}
	if !r.goneForLong(ref, gone) {
		return true, nil
	}
	known, err := r.kubelet.Has(ctx, ref)
	switch {
	case err != nil:
		return true, &prepare.InUse{Usage: prepare.UsageUnknown, Cause: err}
	case known:
		return true, &prepare.InUse{Usage: prepare.UsedByKubelet, Cause: errNotUnprepared}
	}
	return false, nil
}

// errNotUnprepared is the cause of a claim that only kubelet has.
var errNotUnprepared = errors.New("kubelet has not unprepared it: if this lasts after its pod has ended, restart kubelet")

// goneForLong records whether the API server has the claim, and reports whether it has been missing for claimGoneGrace.
func (r *Reader) goneForLong(ref prepare.Ref, gone bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !gone {
		delete(r.gone, ref.UID)
		return false
	}
	since, known := r.gone[ref.UID]
	if !known {
		since = time.Now()
		// Most of the earlier ones were unprepared by kubelet meanwhile.
		maps.DeleteFunc(r.gone, func(_ string, since time.Time) bool { return time.Since(since) > 2*claimGoneGrace })
		r.gone[ref.UID] = since
	}
	return time.Since(since) >= claimGoneGrace
}

// anyVersion is the resource version of reads that the API server's watch cache serves, possibly with an older state.
const anyVersion = "0"

// object gets the claim if it is allocated.
func (r *Reader) object(ctx context.Context, ref prepare.Ref, options metav1.GetOptions) (*resourceapi.ResourceClaim, error) {
	if ref.Name == "" { // its record was damaged
		return nil, fmt.Errorf("get claim %s without its name: %w", ref.UID, prepare.ErrNoClaim)
	}
	object, err := r.client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, options)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("get claim %s: %w", ref, prepare.ErrNoClaim)
	case err != nil:
		return nil, fmt.Errorf("get claim %s: %w", ref, err)
	case string(object.UID) != ref.UID, object.Status.Allocation == nil:
		return nil, fmt.Errorf("get claim %s: %w", ref, prepare.ErrNoClaim)
	}
	return object, nil
}
