package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// ValidationPart is one part of a validation: a claim and a pod that uses it. Its value ends their name.
type ValidationPart string

// The parts of the validation of a node, in their order.
const (
	PartGPUs ValidationPart = ""     // every GPU computes, and every MIG device that exists, through a monitor claim
	PartMIG  ValidationPart = "-mig" // the smallest MIG device is created, computes and is destroyed
)

// NodeValidationParts returns the parts of the validation of a node.
func NodeValidationParts() []ValidationPart { return []ValidationPart{PartGPUs, PartMIG} }

// GPUValidationPart returns the part that validates one GPU, by its name. It uses a monitor claim too: that needs no shape to be offered and does not
// wait for claims that are still allocated on the GPU.
func GPUValidationPart(gpu string) ValidationPart { return ValidationPart("-" + gpu) }

// AllValidationParts returns every part that may exist on a node: its own, and one for each GPU in spec.remediations.
func AllValidationParts(node *v1alpha1.GPUNode) []ValidationPart {
	parts := NodeValidationParts()
	for _, order := range node.Spec.Remediations {
		parts = append(parts, GPUValidationPart(order.GPU))
	}
	return parts
}

// ValidationScope selects the GPUs of a node that are validated, by the UUIDs that their devices publish. The zero value selects all.
type ValidationScope struct {
	// Driver is the name of the DRA driver that publishes the devices.
	Driver string
	// Only is the UUID of the one GPU that is validated. If it is empty, all are but those in Without.
	Only    string
	Without []string
}

// selectors returns the CEL selectors of the monitor devices. A device without the attribute counts as one with an empty UUID.
func (s ValidationScope) selectors() []resourceapi.DeviceSelector {
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

// ValidationName returns the name of the pod and the claim of a part.
func ValidationName(node string, part ValidationPart) string {
	return render.OperandValidation + "-" + node + string(part)
}

// Validation describes the claims and pods that validate a node or a GPU. They are made as users' are, so that what users rely on is what is tested.
type Validation struct {
	Node *v1alpha1.GPUNode
	// Parts are created in this order. Scope applies to all but PartMIG, which any GPU that accepts claims can serve.
	Parts []ValidationPart
	Scope ValidationScope
	// Barrier is the value of AnnotationBarrier.
	Barrier string
	// Agent is the node agent, whose image validates unless Component has an image. That one then runs its entrypoint, and passes with exit code 0.
	// Scheduler is the name of the scheduler that places the pods.
	Agent       v1alpha1.Component
	Component   v1alpha1.Component
	PullSecrets []string
	Scheduler   string
	Timeout     time.Duration
}

// CreateValidation creates the claims and pods of a validation. Those that exist are left as they are. A part that fails does not stop the others; the
// errors are joined.
func (c Cluster) CreateValidation(ctx context.Context, v Validation) error {
	if err := c.AllowAdminAccess(ctx); err != nil {
		return err
	}
	var failed error
	for _, part := range v.Parts {
		for _, object := range []client.Object{c.validationClaim(v, part), c.validationPod(v, part)} {
			if err := c.Client.Create(ctx, object, client.FieldOwner(Manager)); err != nil && !apierrors.IsAlreadyExists(err) {
				failed = errors.Join(failed, fmt.Errorf("create %T %s: %w", object, object.GetName(), err))
			}
		}
	}
	return failed
}

func (c Cluster) validationClaim(v Validation, part ValidationPart) *resourceapi.ResourceClaim {
	request := resourceapi.ExactDeviceRequest{
		DeviceClassName: "monitor.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeAll, AdminAccess: new(true),
		Selectors: v.Scope.selectors(),
	}
	if part == PartMIG {
		request = resourceapi.ExactDeviceRequest{
			DeviceClassName: "mig.tessera.dev", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
	}
	request.Tolerations = []resourceapi.DeviceToleration{{Key: v1alpha1.TaintMaintenance, Operator: resourceapi.DeviceTolerationOpExists}}
	return &resourceapi.ResourceClaim{
		ObjectMeta: c.validationMeta(v, part),
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: &request}},
		}},
	}
}

func (c Cluster) validationMeta(v Validation, part ValidationPart) metav1.ObjectMeta {
	meta := c.ownedBy(v.Node, ValidationName(v.Node.Name, part), render.OperandValidation)
	meta.Annotations = map[string]string{AnnotationBarrier: v.Barrier}
	return meta
}

func (c Cluster) validationPod(v Validation, part ValidationPart) *corev1.Pod {
	component := v.Component
	container := corev1.Container{
		Name: "validator", Image: component.Image, ImagePullPolicy: component.ImagePullPolicy, Args: component.Args, Env: component.Env,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	secrets := slices.Concat(v.PullSecrets, component.ImagePullSecrets)
	if component.Image == "" {
		container.Image, container.Command = v.Agent.Image, validateCommand(part)
		container.ImagePullPolicy = cmp.Or(component.ImagePullPolicy, v.Agent.ImagePullPolicy)
		secrets = append(secrets, v.Agent.ImagePullSecrets...)
	}
	if component.Resources != nil {
		container.Resources = *component.Resources.DeepCopy()
	}
	container.Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
	name := ValidationName(v.Node.Name, part)
	return &corev1.Pod{ObjectMeta: c.validationMeta(v, part), Spec: corev1.PodSpec{
		ServiceAccountName:           render.OperandValidation,
		AutomountServiceAccountToken: new(false),
		SchedulerName:                v.Scheduler,
		RestartPolicy:                corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:        new(int64(v.Timeout.Seconds())),
		Affinity:                     nodeAffinity(v.Node.Name),
		Tolerations:                  append([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, component.Tolerations...),
		ImagePullSecrets:             pullSecrets(secrets),
		ResourceClaims:               []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &name}},
		Containers:                   []corev1.Container{container},
	}}
}

// validateCommand returns the command of the node agent's image for a part.
func validateCommand(part ValidationPart) []string {
	command := []string{"tessera-node", "validate"}
	if part == PartMIG {
		command = append(command, "--mig")
	}
	return command
}

// nodeAffinity restricts a pod to one node. spec.nodeName would bypass the scheduler, which has to allocate the pod's claim.
func nodeAffinity(node string) *corev1.Affinity {
	field := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{field}}},
	}}}
}

// DeleteValidation deletes the pods and claims of parts of a validation. One that fails does not stop the others; the errors are joined.
func (c Cluster) DeleteValidation(ctx context.Context, node string, parts ...ValidationPart) error {
	var failed error
	for _, part := range parts {
		key := types.NamespacedName{Namespace: c.Namespace, Name: ValidationName(node, part)}
		for _, object := range []client.Object{&corev1.Pod{}, &resourceapi.ResourceClaim{}} {
			if err := c.Client.Get(ctx, key, object); err != nil {
				failed = errors.Join(failed, client.IgnoreNotFound(err))
				continue
			}
			if object.GetDeletionTimestamp() == nil {
				failed = errors.Join(failed, c.deleteObject(ctx, object))
			}
		}
	}
	return failed
}

// AllowAdminAccess labels the installer's namespace so that its claims may request admin access.
func (c Cluster) AllowAdminAccess(ctx context.Context) error {
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
