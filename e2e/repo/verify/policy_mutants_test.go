package verify

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"github.com/google/go-cmp/cmp"
	workers "golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

var policyMutants = flag.Int("policy-mutants", 0, "number of mutants of each policy that TestPolicyMutants tests")

// policyTests are the tests that evaluate policies.
const policyTests = "^(TestAgentMakesItsOwnDaemonsOnly|TestDaemonsPullWithTheAgentsSecrets|TestAgentWritesItsOwnSlicesOnly|TestAGPUNodeIsWrittenByItsOwn|" +
	"TestTheInstallerMakesPodsOfTwoKinds|TestTheInstallerWritesItsOwnLabels|TestOneSchedulerAllocates|TestMonitorsNeedAdminAccess|TestClaimsWithoutRequests|TestParametersOfTheCorpus|" +
	"TestNodeCannotWriteResourceSlicesOfOthers|TestNodeCannotWriteGPUNodesOfOthers|TestNodeCannotReachObjectsThroughPods|" +
	"TestInstallerPodsCannotReachSecrets|TestInstallerCannotChangeNodes|TestVGPUDeviceManagerWritesThreeLabels)$"

// TestPolicyMutants runs the tests of policies with policies of which one expression is changed. At most a tenth of the changes may pass them.
func TestPolicyMutants(t *testing.T) {
	if *policyMutants == 0 {
		t.Skip("takes minutes: part of make test-long, which gives -policy-mutants")
	}
	var sample []policyMutant
	shuffle := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // reproducible
	for _, policy := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](rendered(t)) {
		all := mutantsOf(t, policy)
		numbers := shuffle.Perm(len(all))
		for _, i := range slices.Sorted(slices.Values(numbers[:min(*policyMutants, len(all))])) {
			sample = append(sample, all[i])
		}
		t.Logf("%s: %d of %d mutants", policy.Name, min(*policyMutants, len(all)), len(all))
	}
	if output, err := runPolicyTests(t.Context(), policyMutant{}); err != nil {
		t.Fatalf("the tests fail without a mutant: %v\n%s", err, output)
	}
	var group workers.Group
	group.SetLimit(runtime.NumCPU())
	var mu sync.Mutex
	survivors := 0
	for _, m := range sample {
		group.Go(func() error {
			output, err := runPolicyTests(t.Context(), m)
			var failed *exec.ExitError
			if errors.As(err, &failed) && bytes.Contains(output, []byte("--- FAIL")) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			survivors++
			t.Logf("%v survived: %s: %s", m, m.kind, m.text)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d mutants survived", survivors, len(sample))
	if survivors*10 > len(sample) {
		t.Error("more than a tenth of the mutants survived")
	}
}

// runPolicyTests runs the tests of policies, in another process, until the first of them fails.
func runPolicyTests(ctx context.Context, m policyMutant) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", policyTests, "-test.failfast", "-test.parallel=1")
	cmd.Env = append(os.Environ(), policyMutantVariable+"="+m.String())
	return cmd.CombinedOutput()
}

// policyMutantVariable of the environment has the mutant of this process.
const policyMutantVariable = "TESSERA_POLICY_MUTANT"

// policyMutant is a change of one expression of a policy; number is its position among the changes of that expression.
type policyMutant struct {
	policy, field string
	number        int
	policyChange
}

func (m policyMutant) String() string { return fmt.Sprintf("%s,%s,%d", m.policy, m.field, m.number) }

// mutated returns the policy with the mutant of this process. A test of another policy ends, because it cannot notice the mutant.
func mutated(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	part := strings.Split(os.Getenv(policyMutantVariable), ",")
	switch part[0] {
	case "":
		return policy
	case policy.Name:
	default:
		t.Skipf("a mutant of %s runs", part[0])
	}
	number, err := strconv.Atoi(part[2])
	if err != nil {
		t.Fatal(err)
	}
	policy = policy.DeepCopy()
	for field, expression := range expressions(policy) {
		if field == part[1] {
			// Variants of the chart differ in the expression of one variable.
			if all := policyChanges(t, field, *expression); number < len(all) {
				*expression = all[number].text
			}
		}
	}
	return policy
}

// mutantsOf returns the mutants of a policy that are policies.
func mutantsOf(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) []policyMutant {
	t.Helper()
	var all []policyMutant
	for field, expression := range expressions(policy) {
		original := *expression
		for number, change := range policyChanges(t, field, original) {
			*expression = change.text
			if _, err := compilePolicy(policy); err == nil {
				all = append(all, policyMutant{policy.Name, field, number, change})
			}
		}
		*expression = original
	}
	return all
}

// expressions iterates over the expressions of a policy, which may be modified, with the names of their fields.
func expressions(policy *admissionregistrationv1.ValidatingAdmissionPolicy) iter.Seq2[string, *string] {
	return func(yield func(string, *string) bool) {
		for i, c := range policy.Spec.MatchConditions {
			if !yield("condition "+c.Name, &policy.Spec.MatchConditions[i].Expression) {
				return
			}
		}
		for i, v := range policy.Spec.Variables {
			if !yield("variable "+v.Name, &policy.Spec.Variables[i].Expression) {
				return
			}
		}
		for i := range policy.Spec.Validations {
			if !yield(fmt.Sprint("validation ", i), &policy.Spec.Validations[i].Expression) {
				return
			}
		}
	}
}

// policyChange is a changed expression.
type policyChange struct{ kind, text string }

// policyChanges returns the changes of an expression, each at one place: operators, literals and functions that are replaced, operands that are left out, and
// conditions and validations that are left out as a whole.
func policyChanges(t *testing.T, field, expression string) []policyChange {
	t.Helper()
	var all []policyChange
	if !strings.HasPrefix(field, "variable") {
		all = append(all, policyChange{"left out", "true"})
	}
	// Without macros, their calls are written as they were read.
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true))
	if err != nil {
		t.Fatal(err)
	}
	parsed, errs := p.Parse(common.NewTextSource(expression))
	if len(errs.GetErrors()) > 0 {
		t.Fatalf("%s: %s", field, errs.ToDisplayString())
	}
	factory := ast.NewExprFactory()
	var walk func(e ast.Expr)
	walk = func(e ast.Expr) {
		for kind, other := range otherExpressions(factory, e) {
			original := factory.CopyExpr(e)
			e.SetKindCase(other)
			text, err := parser.Unparse(parsed.Expr(), parsed.SourceInfo())
			if err != nil {
				t.Fatal(err)
			}
			e.SetKindCase(original)
			all = append(all, policyChange{kind, text})
		}
		for _, child := range children(e) {
			walk(child)
		}
	}
	walk(parsed.Expr())
	return all
}

// children returns the expressions directly in an expression.
func children(e ast.Expr) []ast.Expr {
	switch e.Kind() { //nolint:exhaustive // the others have none, or are results of macros
	case ast.CallKind:
		if c := e.AsCall(); c.IsMemberFunction() {
			return append([]ast.Expr{c.Target()}, c.Args()...)
		}
		return e.AsCall().Args()
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.ListKind:
		return e.AsList().Elements()
	}
	return nil
}

// replaced are the functions that mutants replace.
var replaced = map[string]string{
	operators.Equals: operators.NotEquals, operators.NotEquals: operators.Equals, operators.LogicalAnd: operators.LogicalOr, operators.LogicalOr: operators.LogicalAnd,
	"all": "exists", "exists": "all", "startsWith": "endsWith",
}

// otherExpressions iterates over what mutants write in the place of an expression.
func otherExpressions(factory ast.ExprFactory, e ast.Expr) iter.Seq2[string, ast.Expr] {
	not := func(e ast.Expr) ast.Expr { return factory.NewCall(0, operators.LogicalNot, factory.CopyExpr(e)) }
	return func(yield func(string, ast.Expr) bool) {
		switch e.Kind() { //nolint:exhaustive // the others have no mutants
		case ast.LiteralKind:
			switch v := e.AsLiteral().(type) {
			case types.Bool:
				yield(fmt.Sprintf("%v becomes %v", v, !v), factory.NewLiteral(0, !v))
			case types.String:
				yield(fmt.Sprintf("%q is another text", string(v)), factory.NewLiteral(0, v+"x"))
			case types.Int:
				yield(fmt.Sprintf("%d becomes %d", v, v+1), factory.NewLiteral(0, v+1))
			}
		case ast.CallKind:
			c := e.AsCall()
			name, args := c.FunctionName(), c.Args()
			if other, ok := replaced[name]; ok {
				call := factory.NewCall(0, other, args...)
				if c.IsMemberFunction() {
					call = factory.NewMemberCall(0, other, c.Target(), args...)
				}
				if !yield(fmt.Sprintf("%s becomes %s", name, other), call) {
					return
				}
			}
			switch name {
			case operators.LogicalAnd, operators.LogicalOr:
				_ = yield("only the left operand", factory.CopyExpr(args[0])) && yield("only the right operand", factory.CopyExpr(args[1]))
			case operators.LogicalNot:
				yield("not negated", factory.CopyExpr(args[0]))
			case operators.In:
				yield("negated", not(e))
			case operators.Conditional:
				yield("the other branch", factory.NewCall(0, name, not(args[0]), args[1], args[2]))
			case "filter":
				yield("the others", factory.NewMemberCall(0, name, c.Target(), args[0], not(args[1])))
			}
		}
	}
}

// TestPolicyChanges checks the changes of an expression.
func TestPolicyChanges(t *testing.T) {
	var got []string
	for _, change := range policyChanges(t, "validation 0", `!has(a.b) || a.?c.orValue('') in ['d'] && e.all(f, f == 1)`) {
		got = append(got, change.kind+": "+change.text)
	}
	want := []string{
		`left out: true`,
		`_||_ becomes _&&_: !has(a.b) && a.?c.orValue("") in ["d"] && e.all(f, f == 1)`,
		`only the left operand: !has(a.b)`,
		`only the right operand: a.?c.orValue("") in ["d"] && e.all(f, f == 1)`,
		`not negated: has(a.b) || a.?c.orValue("") in ["d"] && e.all(f, f == 1)`,
		`_&&_ becomes _||_: !has(a.b) || a.?c.orValue("") in ["d"] || e.all(f, f == 1)`,
		`only the left operand: !has(a.b) || a.?c.orValue("") in ["d"]`,
		`only the right operand: !has(a.b) || e.all(f, f == 1)`,
		`negated: !has(a.b) || !(a.?c.orValue("") in ["d"]) && e.all(f, f == 1)`,
		`"c" is another text: !has(a.b) || a.?cx.orValue("") in ["d"] && e.all(f, f == 1)`,
		`"" is another text: !has(a.b) || a.?c.orValue("x") in ["d"] && e.all(f, f == 1)`,
		`"d" is another text: !has(a.b) || a.?c.orValue("") in ["dx"] && e.all(f, f == 1)`,
		`all becomes exists: !has(a.b) || a.?c.orValue("") in ["d"] && e.exists(f, f == 1)`,
		`_==_ becomes _!=_: !has(a.b) || a.?c.orValue("") in ["d"] && e.all(f, f != 1)`,
		`1 becomes 2: !has(a.b) || a.?c.orValue("") in ["d"] && e.all(f, f == 2)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
