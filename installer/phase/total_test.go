package phase

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// values are the possible values of the fields of a world, by type.
var values = map[reflect.Type][]string{
	reflect.TypeFor[PodState](): {
		string(PodAbsent), string(PodPending), string(PodStarting), string(PodReady), string(PodSucceeded), string(PodFailed), string(PodTerminating),
	},
	reflect.TypeFor[ValidationState](): {
		string(ValidationNone), string(ValidationRunning), string(ValidationPassed), string(ValidationFailed),
	},
	reflect.TypeFor[v1alpha1.NodePhase](): {
		"", string(v1alpha1.PhaseReady), string(v1alpha1.PhaseUpgrading), string(v1alpha1.PhaseBlocked), string(v1alpha1.PhaseFailed), string(v1alpha1.PhaseToolkitReady),
	},
	reflect.TypeFor[v1alpha1.UpgradeStep](): {
		"", string(v1alpha1.StepTaint), string(v1alpha1.StepRefuse), string(v1alpha1.StepDrain), string(v1alpha1.StepStopAgent), string(v1alpha1.StepOperate),
		string(v1alpha1.StepStart), string(v1alpha1.StepValidate),
	},
	reflect.TypeFor[v1alpha1.Operation](): {"", string(v1alpha1.OperationDriverSwap), string(v1alpha1.OperationMIGMode)},
	reflect.TypeFor[string]():             {"", ReasonDrainBlocked, ReasonGPUsInUse, ReasonAgentFailed, ReasonValidationFailed, ReasonMIGModeFailed},
}

// anyWorld draws a random world, reachable or not.
func anyWorld(t *rapid.T) world {
	var w world
	v := reflect.ValueOf(&w).Elem()
	for i := range v.NumField() {
		name, field := v.Type().Field(i).Name, reflect.NewAt(v.Field(i).Type(), v.Field(i).Addr().UnsafePointer()).Elem()
		options, closed := values[field.Type()]
		switch {
		case closed:
			field.SetString(rapid.SampledFrom(options).Draw(t, name))
		case field.CanUint():
			field.SetUint(uint64(rapid.Uint8Range(0, 2).Draw(t, name)))
		default:
			field.SetBool(rapid.Bool().Draw(t, name))
		}
	}
	return w
}

// reasons are those declared in reason.go.
func reasons(t *testing.T) map[string]bool {
	known := map[string]bool{
		v1alpha1.AttemptDrainBlocked: true, v1alpha1.AttemptClaimsPrepared: true, v1alpha1.AttemptClaimUnreadable: true, v1alpha1.AttemptAgentNotResponding: true,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			known[value] = true
		}
		return true
	})
	return known
}

// TestAnythingIsDecided checks that every observation, possible or not, has a valid and deterministic decision.
func TestAnythingIsDecided(t *testing.T) {
	known := reasons(t)
	rapid.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		o := w.observe()
		d := Next(o)
		if diff := cmp.Diff(d, Next(o)); diff != "" {
			t.Fatalf("decided otherwise the second time: %s", diff)
		}
		placed := d.Action != Place || d.Labels != o.Node.Labels
		stepped := d.Step == "" || d.Phase == v1alpha1.PhaseUpgrading || d.Phase == v1alpha1.PhaseFailed || d.Phase == v1alpha1.PhaseBlocked
		switch {
		case d.Phase == "" || d.Action == "" || !known[d.Reason] || d.Message == "" || len(d.Conditions) != 4:
			t.Fatalf("decided %+v", d)
		case !placed:
			t.Fatalf("places what is there: %+v", d)
		case !stepped || d.Phase == v1alpha1.PhaseUpgrading && d.Step == "":
			t.Fatalf("phase %s in step %q", d.Phase, d.Step)
		case d.After < 0 || d.After > 24*time.Hour:
			t.Fatalf("looks again after %s: %+v", d.After, d)
		}
	})
}
