package action

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Part is a part of a validation.
type Part string

// The parts of a validation, in their order.
const (
	PartGPUs Part = ""     // every GPU computes, through a monitor claim
	PartMIG  Part = "-mig" // the smallest slice is carved, computes and is released
)

// Parts are all parts of the proof of a node.
func Parts() []Part { return []Part{PartGPUs, PartMIG} }

// PartOf is the proof of one GPU by its name, through a monitor claim as well: it needs no shape to be offered, and does not wait for claims that are
// still allocated there.
func PartOf(gpu string) Part { return Part("-" + gpu) }

// PartsOf are all that may be under way on a node.
func PartsOf(node *v1alpha1.GPUNode) []Part {
	parts := Parts()
	for _, order := range node.Spec.Remedies {
		parts = append(parts, PartOf(order.GPU))
	}
	return parts
}

// Scope is which GPUs of the node are proven, by the UUIDs that their devices publish. The zero value is all.
type Scope struct {
	// Driver is the name of the DRA driver that publishes them.
	Driver string
	// Only is the one that is proven; empty: Without are those that are not.
	Only    string
	Without []string
}

// selectors choose their monitors. One that publishes no UUID is chosen by an empty one.
func (s Scope) selectors() []resourceapi.DeviceSelector {
	uuid, expression := fmt.Sprintf("device.attributes[%q].?uuid.orValue('')", s.Driver), ""
	switch {
	case s.Only != "":
		expression = fmt.Sprintf("%s == %q", uuid, s.Only)
	case len(s.Without) > 0:
		var list []string
		for _, out := range s.Without {
			list = append(list, strconv.Quote(out))
		}
		expression = fmt.Sprintf("!(%s in [%s])", uuid, strings.Join(list, ", "))
	default:
		return nil
	}
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
}

// ValidationName is the name of pod and claim of a part.
func ValidationName(node string, part Part) string {
	return render.OperandValidation + "-" + node + string(part)
}

// Validate proves that a node works: it makes claims as users do, and pods that use them.
type Validate struct {
	Node *v1alpha1.GPUNode
	// Parts are what is proven, Scope on which GPUs; a slice is proven on any that takes claims.
	Parts []Part
	Scope Scope
	// Barrier says for which boot, driver and agent it holds, or for which attempt to bring a GPU back.
	Barrier string
	// Component has the image, Scheduler the name of who places the pods.
	Component   v1alpha1.Component
	PullSecrets []string
	Scheduler   string
	Timeout     time.Duration
}

// Do performs it. What stands already is left to itself.
func (a Validate) Do(ctx context.Context, c Cluster) error {
	if err := (Admit{}).Do(ctx, c); err != nil {
		return err
	}
	var failed error
	for _, part := range a.Parts {
		for _, object := range []client.Object{a.claim(c, part), a.pod(c, part)} {
			if err := c.Client.Create(ctx, object, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
				failed = errors.Join(failed, fmt.Errorf("make %T %s: %w", object, object.GetName(), err))
			}
		}
	}
	return failed
}

// claim asks for what the part proves.
func (a Validate) claim(c Cluster, part Part) *resourceapi.ResourceClaim {
	request := resourceapi.ExactDeviceRequest{
		DeviceClassName: "monitor.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeAll, AdminAccess: new(true),
		Selectors: a.Scope.selectors(),
	}
	if part == PartMIG {
		request = resourceapi.ExactDeviceRequest{
			DeviceClassName: "mig.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
	}
	request.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintMaintenance, Operator: resourceapi.DeviceTolerationOpExists}}
	return &resourceapi.ResourceClaim{
		ObjectMeta: a.meta(c, part),
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: &request}},
		}},
	}
}

func (a Validate) meta(c Cluster, part Part) metav1.ObjectMeta {
	meta := c.owned(a.Node, ValidationName(a.Node.Name, part), render.OperandValidation)
	meta.Annotations = map[string]string{AnnotationBarrier: a.Barrier}
	return meta
}

// pod uses the claim on the node, as a user's pod would.
func (a Validate) pod(c Cluster, part Part) *corev1.Pod {
	v := a.Component
	container := corev1.Container{
		Name: "validator", Image: v.Image, ImagePullPolicy: v.ImagePullPolicy, Args: v.Args, Env: v.Env,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	if v.Resources != nil {
		container.Resources = *v.Resources.DeepCopy()
	}
	container.Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
	name := ValidationName(a.Node.Name, part)
	return &corev1.Pod{ObjectMeta: a.meta(c, part), Spec: corev1.PodSpec{
		ServiceAccountName:           render.OperandValidation,
		AutomountServiceAccountToken: new(false),
		SchedulerName:                a.Scheduler,
		RestartPolicy:                corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:        new(int64(a.Timeout.Seconds())),
		Affinity:                     on(a.Node.Name),
		Tolerations:                  append([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, v.Tolerations...),
		ImagePullSecrets:             pullSecrets(append(a.PullSecrets, v.ImagePullSecrets...)),
		ResourceClaims:               []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &name}},
		Containers:                   []corev1.Container{container},
	}}
}

// on keeps a pod on one node and still has it scheduled: its claim must be allocated.
func on(node string) *corev1.Affinity {
	field := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{field}}},
	}}}
}

// EndValidate removes pods and claims of parts of a validation.
type EndValidate struct {
	Node  string
	Parts []Part
}

// Do performs it.
func (a EndValidate) Do(ctx context.Context, c Cluster) error {
	var failed error
	for _, part := range a.Parts {
		meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: ValidationName(a.Node, part)}
		for _, object := range []client.Object{&corev1.Pod{}, &resourceapi.ResourceClaim{}} {
			key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
			if err := c.Client.Get(ctx, key, object); err != nil {
				failed = errors.Join(failed, client.IgnoreNotFound(err))
				continue
			}
			if object.GetDeletionTimestamp() == nil {
				failed = errors.Join(failed, c.remove(ctx, object))
			}
		}
	}
	return failed
}

// Admit labels the installer's namespace as one whose claims may ask for admin access.
type Admit struct{}

// Do performs it.
func (a Admit) Do(ctx context.Context, c Cluster) error {
	namespace := &corev1.Namespace{}
	if err := c.Live.Get(ctx, types.NamespacedName{Name: c.Namespace}, namespace); err != nil {
		return fmt.Errorf("read namespace %s: %w", c.Namespace, err)
	}
	if namespace.Labels[resourceapi.DRAAdminNamespaceLabelKey] == "true" {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+resourceapi.DRAAdminNamespaceLabelKey+`":"true"}}}`))
	if err := c.Live.Patch(ctx, namespace, patch, client.FieldOwner(Manager)); err != nil {
		return fmt.Errorf("label namespace %s for admin access: %w", c.Namespace, err)
	}
	return nil
}
