package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tessera-gpu/tessera/api/gpu"
)

// The bounds of a HealthSpec.
const (
	maxXIDRules = 64
	maxXID      = 65535
)

// Rules returns the rules of the spec. A rule without a remedy has that of the XID table. Invalid rules are omitted.
func (h HealthSpec) Rules() gpu.Rules {
	rules := gpu.Rules{}
	if h.QuietPeriod != nil {
		rules.Quiet = h.QuietPeriod.Duration
	}
	for _, x := range h.XIDs {
		j, err := x.judgement()
		if err != nil {
			continue
		}
		if rules.XIDs == nil {
			rules.XIDs = map[int]gpu.Judgement{}
		}
		rules.XIDs[x.Code] = j
	}
	return rules
}

// judgement returns the judgement of the XID table with the severity and the remedy of the rule.
func (x XIDRule) judgement() (gpu.Judgement, error) {
	j := gpu.Rules{}.Judge(gpu.SignalXID, x.Code)
	var err error
	if j.Severity, err = gpu.ParseSeverity(x.Severity); err != nil || x.Remedy == "" {
		return j, err
	}
	j.Remedy, err = gpu.ParseRemedy(x.Remedy)
	return j, err
}

func (h HealthSpec) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q := h.QuietPeriod; q != nil && (q.Duration <= 0 || q.Duration > gpu.LongestQuiet) {
		errs = append(errs, field.Invalid(at.Child("quietPeriod"), q.Duration.String(), fmt.Sprintf("must be more than 0s and at most %v", gpu.LongestQuiet)))
	}
	xids := at.Child("xids")
	if len(h.XIDs) > maxXIDRules {
		errs = append(errs, field.TooMany(xids, len(h.XIDs), maxXIDRules))
	}
	seen := map[int]bool{}
	for i, x := range h.XIDs {
		errs = append(errs, x.validate(xids.Index(i))...)
		if seen[x.Code] {
			errs = append(errs, field.Duplicate(xids.Index(i).Child("code"), x.Code))
		}
		seen[x.Code] = true
	}
	return errs
}

func (x XIDRule) validate(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if x.Code < 1 || x.Code > maxXID {
		errs = append(errs, field.Invalid(at.Child("code"), x.Code, validation.InclusiveRangeError(1, maxXID)))
	}
	if _, err := gpu.ParseSeverity(x.Severity); err != nil {
		errs = append(errs, field.NotSupported(at.Child("severity"), x.Severity, names(gpu.Harmless, gpu.Fatal)))
	}
	if _, err := gpu.ParseRemedy(x.Remedy); err != nil && x.Remedy != "" {
		errs = append(errs, field.NotSupported(at.Child("remedy"), x.Remedy, names(gpu.Wait, gpu.Replace)))
	}
	return errs
}

// names returns the names of the values from first to last.
func names[T interface {
	~int
	String() string
}](first, last T) []string {
	var list []string
	for v := first; v <= last; v++ {
		list = append(list, v.String())
	}
	return list
}
