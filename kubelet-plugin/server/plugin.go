package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// callTimeout limits one call. kubelet cancels a call after 45 s; before that, it gets an error that names what the call waits for.
const callTimeout = 40 * time.Second

// errPanic marks a call that panicked.
var errPanic = errors.New("bug in the agent")

// plugin implements the callbacks of the helper, which should not be methods of Server.
type plugin struct{ *Server }

var _ kubeletplugin.DRAPlugin = (*plugin)(nil)

// PrepareResourceClaims prepares the claims concurrently. Each has its own result: a failure does not affect others.
func (p *plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	p.begun.Add(1)
	defer p.ended.Add(1)
	return forEachClaim(ctx, claims, func(ctx context.Context, claim *resourceapi.ResourceClaim) (types.UID, kubeletplugin.PrepareResult) {
		devices, err := p.prepare(ctx, claim)
		return claim.UID, kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}), nil
}

// UnprepareResourceClaims unprepares the claims concurrently, each with its own result.
func (p *plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	p.begun.Add(1)
	defer p.ended.Add(1)
	return forEachClaim(ctx, claims, func(ctx context.Context, claim kubeletplugin.NamespacedObject) (types.UID, error) {
		return claim.UID, p.unprepare(ctx, claim)
	}), nil
}

func (p *plugin) prepare(ctx context.Context, object *resourceapi.ResourceClaim) (devices []kubeletplugin.Device, err error) {
	ref := prepare.Ref{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name}
	ctx, finish := p.startCall(ctx, preparing, ref)
	shape := ""
	var answers []prepare.Answer
	defer func() {
		finish(shape, err)
		p.reportResult(ref, answers, err)
	}()
	defer recovered(ctx, &err)

	claim, err := p.Translate(object)
	if err != nil {
		return nil, &invalidClaim{err}
	}
	shape = shapeOf(claim)
	answers, err = p.Claims.Prepare(ctx, claim)
	if err != nil {
		return nil, err
	}
	return devicesOf(answers), nil
}

func (p *plugin) unprepare(ctx context.Context, object kubeletplugin.NamespacedObject) (err error) {
	claim := prepare.Ref{UID: string(object.UID), Namespace: object.Namespace, Name: object.Name}
	ctx, finish := p.startCall(ctx, unpreparing, claim)
	defer func() { finish("", err) }()
	defer recovered(ctx, &err)

	if err := p.Claims.Unprepare(ctx, claim); err != nil {
		return err
	}
	p.Status.Unprepared(claim)
	return nil
}

// devicesOf converts the answers to kubelet's type.
func devicesOf(answers []prepare.Answer) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(answers))
	for _, answer := range answers {
		device := kubeletplugin.Device{
			Requests:     []string{answer.Request},
			PoolName:     answer.Pool,
			DeviceName:   answer.Device,
			CDIDeviceIDs: answer.CDIDevices,
			Metadata:     metadataOf(answer),
		}
		if answer.ShareID != "" {
			device.ShareID = new(types.UID(answer.ShareID))
		}
		devices = append(devices, device)
	}
	return devices
}

// metadataOf returns metadata of a GPU for a virtual machine, named after the device's attributes. Other containers query the driver.
func metadataOf(answer prepare.Answer) *kubeletplugin.DeviceMetadata {
	if answer.Use.Shape != gpu.VFIO {
		return nil
	}
	attributes := map[string]resourceapi.DeviceAttribute{}
	for name, text := range map[resourceapi.QualifiedName]string{
		wire.Type: answer.Use.Shape.String(), wire.PCIBusID: answer.GPU.PCI, wire.IOMMUGroup: answer.IOMMUGroup, wire.ProductName: answer.GPU.Product,
	} {
		attributes[string(name)] = resourceapi.DeviceAttribute{StringValue: new(text)}
	}
	return &kubeletplugin.DeviceMetadata{Attributes: attributes}
}

// shapeOf returns the value of the label shape: the claim's shape, or mixed.
func shapeOf(claim prepare.Claim) string {
	shape := ""
	for _, wanted := range claim.Wanted {
		switch name := wanted.Use.Shape.String(); shape {
		case "", name:
			shape = name
		default:
			return "mixed"
		}
	}
	return shape
}

// forEachClaim calls do concurrently for all items, within callTimeout, and collects the results by UID.
func forEachClaim[Item, Result any](ctx context.Context, items []Item, do func(context.Context, Item) (types.UID, Result)) map[types.UID]Result {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	results := make(map[types.UID]Result, len(items))
	var mutex sync.Mutex
	var group sync.WaitGroup
	for _, item := range items {
		group.Go(func() {
			uid, result := do(ctx, item)
			mutex.Lock()
			defer mutex.Unlock()
			results[uid] = result
		})
	}
	group.Wait()
	return results
}

// startCall counts a call in and begins its span; the returned function counts it out, ends the span and logs why the call failed. The context has the span
// and a logger with the claim.
func (p *plugin) startCall(ctx context.Context, op operation, claim prepare.Ref) (_ context.Context, finish func(shape string, err error)) {
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KRef(claim.Namespace, claim.Name), "claimUID", claim.UID))
	ctx, span := tracer.Start(ctx, string(op), trace.WithAttributes(
		attribute.String("claim.namespace", claim.Namespace), attribute.String("claim.name", claim.Name), attribute.String("claim.uid", claim.UID)))
	count := p.Metrics.startCall(op)
	return ctx, func(shape string, err error) {
		count(shape, err)
		if shape != "" {
			span.SetAttributes(attribute.String("claim.shape", shape))
		}
		endSpan(span, err)
		if err != nil {
			klog.FromContext(ctx).Error(err, "A claim failed", "op", op)
		}
	}
}

// recovered turns a panic of one claim into its error, so that it harms no other.
func recovered(ctx context.Context, err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("%w: %v", errPanic, cause)
		klog.FromContext(ctx).Error(*err, "Recovered from a panic", "stack", string(debug.Stack()))
	}
}
