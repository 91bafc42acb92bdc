package verify

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tessera-gpu/tessera/api/wire"
)

const agentAccount = "system:serviceaccount:tessera-system:tessera-node"

func slice(driver string, node *string) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: node}}
	if node != nil {
		s.Spec.Pool.Name = wire.PoolName(*node, driver)
	}
	return s
}

// TestEveryPolicyIsBound: a policy without a binding rejects nothing.
func TestEveryPolicyIsBound(t *testing.T) {
	objects := manifests(t, "deployments")
	for _, policy := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, policy.Name)
		if binding.Spec.PolicyName != policy.Name {
			t.Errorf("the binding %s is for %s", binding.Name, binding.Spec.PolicyName)
		}
		if diff := cmp.Diff([]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, binding.Spec.ValidationActions); diff != "" {
			t.Errorf("actions of %s (-want +got):\n%s", binding.Name, diff)
		}
	}
}

// TestAgentWritesItsOwnSlicesOnly evaluates the admission policy as the API server does.
func TestAgentWritesItsOwnSlicesOnly(t *testing.T) {
	judge := judgeOf(t, "resourceslices.gpu.tessera.dev", target{
		resource: resourceapi.SchemeGroupVersion.WithResource("resourceslices"),
		kind:     resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"),
	})
	own, other := "node1", "node2"
	mine, theirs := slice("gpu.tessera.dev", &own), slice("gpu.tessera.dev", &other)
	stolen := slice("gpu.tessera.dev", &own)
	stolen.Spec.Pool = theirs.Spec.Pool
	const refusal = "on node node1 may not write the pool node2-gpu.tessera.dev: set spec.pool.name to node1-gpu.tessera.dev"
	foreign := slice("nic.example.com", &own)
	foreign.Spec.Pool.Name = "anything"

	tests := map[string]struct {
		who              user.Info
		operation        admission.Operation
		object, previous runtime.Object
		// want is a part of the refusal; empty when the write passes.
		want string
	}{
		"creates its own":                {agent, admission.Create, mine, nil, ""},
		"updates its own":                {agent, admission.Update, mine, mine, ""},
		"deletes its own":                {agent, admission.Delete, nil, mine, ""},
		"creates another node's":         {agent, admission.Create, theirs, nil, "the agent on node node1 may not write the ResourceSlice of node node2: set spec.nodeName to node1"},
		"updates another node's":         {agent, admission.Update, theirs, theirs, "may not write the ResourceSlice of node node2"},
		"deletes another node's":         {agent, admission.Delete, nil, theirs, "may not write the ResourceSlice of node node2"},
		"creates one for all nodes":      {agent, admission.Create, slice("gpu.tessera.dev", nil), nil, "may not write the ResourceSlice of all nodes"},
		"creates another driver's":       {agent, admission.Create, slice("gpu.nvidia.com", &own), nil, "may not write ResourceSlices of driver gpu.nvidia.com: its driver is gpu.tessera.dev"},
		"deletes another driver's":       {agent, admission.Delete, nil, slice("gpu.nvidia.com", &own), "may not write ResourceSlices of driver gpu.nvidia.com"},
		"creates in another node's pool": {agent, admission.Create, stolen, nil, "the agent " + refusal},
		"updates in another node's pool": {agent, admission.Update, stolen, stolen, "the agent " + refusal},
		"deletes what is in that pool":   {agent, admission.Delete, nil, stolen, ""},
		"kubelet in its pool":            {kubelet, admission.Create, mine, nil, ""},
		"kubelet in another node's pool": {kubelet, admission.Create, stolen, nil, "kubelet " + refusal},
		"kubelet updates that pool":      {kubelet, admission.Update, stolen, stolen, "kubelet " + refusal},
		"kubelet of another node":        {kubelet, admission.Create, theirs, nil, "kubelet on node node1 may not write the ResourceSlice of node node2"},
		"kubelet cleans up":              {kubelet, admission.Delete, nil, stolen, ""},
		"kubelet of another driver":      {kubelet, admission.Create, foreign, nil, ""},
		"has a token of no node":         {unbound, admission.Create, mine, nil, "is not bound to a pod on a node"},
		"an administrator may":           {admin, admission.Create, theirs, nil, ""},
		"an administrator may clean":     {admin, admission.Delete, nil, theirs, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(judge(t, test.who, test.operation, test.object, test.previous), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("refusal: got %q, want %q", got, test.want)
			}
		})
	}
}

// The users who write in the tests of policies.
var (
	agent   = &user.DefaultInfo{Name: agentAccount, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}}}
	unbound = &user.DefaultInfo{Name: agentAccount}
	admin   = &user.DefaultInfo{Name: "admin"}
	kubelet = &user.DefaultInfo{Name: "system:node:node1", Groups: []string{user.NodesGroup}}
)

// target is the resource that is written.
type target struct {
	resource    schema.GroupVersionResource
	kind        schema.GroupVersionKind
	subresource string
	// name of the object, where the policy uses it.
	name string
}

// judgeOf returns the verdict of a policy on the agent's writes.
func judgeOf(t *testing.T, policy string, to target) verdict {
	t.Helper()
	objects := manifests(t, "deployments")
	account := one[*corev1.ServiceAccount](t, objects)
	if got := "system:serviceaccount:" + account.Namespace + ":" + account.Name; got != agentAccount {
		t.Errorf("the agent's account is %s, the test uses %s", got, agentAccount)
	}
	return compile(t, named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, policy), to)
}

// verdict returns the messages of the validations that refuse a write.
type verdict func(t *testing.T, who user.Info, operation admission.Operation, object, previous runtime.Object) []string

// expression is an expression of a policy for the compiler.
type expression struct {
	name, text string
	result     *celgo.Type
}

func (e expression) GetName() string            { return e.name }
func (e expression) GetExpression() string      { return e.text }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.result} }

// compile prepares a policy for the writes of one resource.
func compile(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy, to target) verdict {
	t.Helper()
	c := newPolicy(t, policy)
	return func(t *testing.T, who user.Info, operation admission.Operation, object, previous runtime.Object) []string {
		t.Helper()
		write := to.attributes(who, operation, object, previous)
		var refusals []string
		for _, i := range c.failing(t, write) {
			refusals = append(refusals, fmt.Sprint(c.messages(t, write)[i]))
		}
		return refusals
	}
}

// policyProgram is a policy for the API server's evaluation. The functions return the results of its conditions, validations and messages.
type policyProgram struct {
	matches, passes, messages func(*testing.T, *admission.VersionedAttributes) []any
}

// failing returns the positions of the validations that refuse the write; none if the policy does not apply to it.
func (c policyProgram) failing(t *testing.T, write *admission.VersionedAttributes) []int {
	t.Helper()
	if slices.Contains(c.matches(t, write), any(false)) {
		return nil
	}
	var failing []int
	for i, passed := range c.passes(t, write) {
		if passed != true {
			failing = append(failing, i)
		}
	}
	return failing
}

// newPolicy prepares a policy with the API server's own compiler.
func newPolicy(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) policyProgram {
	t.Helper()
	program, err := compilePolicy(mutated(t, policy))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func compilePolicy(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (policyProgram, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return policyProgram{}, err
	}
	for _, v := range policy.Spec.Variables {
		result := compiler.CompileAndStoreVariable(expression{v.Name, v.Expression, celgo.AnyType}, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		if result.Error != nil {
			return policyProgram{}, fmt.Errorf("variable %s: %w", v.Name, result.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, expression{c.Name, c.Expression, celgo.BoolType})
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, expression{v.Expression, v.Expression, celgo.BoolType})
		message := v.MessageExpression
		if message == "" {
			message = strconv.Quote(v.Message)
		}
		messages = append(messages, expression{message, message, celgo.StringType})
	}
	var failed error
	evaluate := func(list []cel.ExpressionAccessor) func(*testing.T, *admission.VersionedAttributes) []any {
		compiled := compiler.CompileCondition(list, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		failed = errors.Join(append(compiled.CompilationErrors(), failed)...)
		return func(t *testing.T, write *admission.VersionedAttributes) []any { return results(t, compiled, write) }
	}
	program := policyProgram{evaluate(conditions), evaluate(validations), evaluate(messages)}
	return program, failed
}

// results evaluates expressions for one write. An expression that fails rejects the write, so its error
// is its result.
func results(t *testing.T, compiled cel.ConditionEvaluator, write *admission.VersionedAttributes) []any {
	t.Helper()
	request := cel.CreateAdmissionRequest(write.Attributes, metav1.GroupVersionResource(write.GetResource()), metav1.GroupVersionKind(write.VersionedKind))
	evaluated, _, err := compiled.ForInput(t.Context(), write, request, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatal(err)
	}
	var values []any
	for _, e := range evaluated {
		if e.Error != nil {
			values = append(values, e.Error)
			continue
		}
		values = append(values, e.EvalResult.Value())
	}
	return values
}

// attributes describes the write to the policy.
func (w target) attributes(who user.Info, operation admission.Operation, object, previous runtime.Object) *admission.VersionedAttributes {
	return &admission.VersionedAttributes{
		Attributes:         admission.NewAttributesRecord(object, previous, w.kind, "", w.name, w.resource, w.subresource, operation, nil, false, who),
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(previous),
		VersionedKind:      w.kind,
	}
}
