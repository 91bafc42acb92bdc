package migrate

import (
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const wholeNode = "has no counterpart: nodes are neither cordoned nor drained, and pods without GPUs keep running. spec.upgrade.drain configures the eviction of pods with GPUs"

// upgradeRules are those of an upgrade policy.
func upgradeRules(path string) []rule {
	return []rule{
		{path + ".autoUpgrade", into(func(c *conversion) **bool { return &c.upgrade.Auto })},
		{path + ".maxParallelUpgrades", into(func(c *conversion) **int32 { return &c.upgrade.MaxParallel })},
		{path + ".maxUnavailable", maxUnavailable},
		{path + ".podDeletion.force", into(func(c *conversion) *bool { return &c.upgrade.Drain.Force })},
		{path + ".podDeletion.timeoutSeconds", seconds(func(c *conversion) **metav1.Duration { return &c.upgrade.Drain.Timeout },
			"means no limit, which has no counterpart: after spec.upgrade.drain.timeout (default 5m) a node returns to service and is retried")},
		{path + ".podDeletion.deleteEmptyDir", into(func(c *conversion) **bool { return &c.upgrade.Drain.DeleteEmptyDir })},
		{path + ".waitForCompletion.podSelector", waitFor},
		{path + ".waitForCompletion.timeoutSeconds", func(c *conversion, value any) string {
			switch selector := c.textAt(path + ".waitForCompletion.podSelector"); {
			case selector == "" || value == 0.0:
				return "" // nothing is waited for, or without end, as by default
			case c.upgrade.Drain.WaitFor == nil:
				return "is a timeout for a selector that selects no pods"
			}
			return seconds(func(c *conversion) **metav1.Duration { return &c.upgrade.Drain.WaitTimeout }, "")(c, value)
		}},
		{path + ".drain", none(wholeNode)},
	}
}

var percentage = regexp.MustCompile(`^(100|[1-9][0-9]?)%$`)

func maxUnavailable(c *conversion, value any) string {
	switch v := value.(type) {
	case float64:
		if v >= 1 {
			c.upgrade.MaxUnavailable = new(intstr.FromInt32(int32(v)))
			return ""
		}
	case string:
		if percentage.MatchString(v) {
			c.upgrade.MaxUnavailable = new(intstr.FromString(v))
			return ""
		}
	}
	return fmt.Sprintf("has the value %v. It must be a number of nodes from 1 or a percentage from 1%% to 100%%; pause a rollout with spec.upgrade.auto: false", value)
}

// waitFor converts a selector in one line. It runs before the rule of its timeout, because rules run in alphabetical order.
func waitFor(c *conversion, value any) string {
	text, _ := value.(string)
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return "cannot be parsed as a selector: " + err.Error()
	}
	var expressions []metav1.LabelSelectorRequirement
	for _, r := range requirements {
		operator, ok := operators[r.Operator()]
		if !ok {
			return "compares labels by " + string(r.Operator()) + ", which label selectors do not support"
		}
		expressions = append(expressions, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: operator, Values: r.Values().List()})
	}
	if len(expressions) > 0 {
		c.upgrade.Drain.WaitFor = &metav1.LabelSelector{MatchExpressions: expressions}
	}
	return ""
}

var operators = map[selection.Operator]metav1.LabelSelectorOperator{
	selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
	selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
	selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
}
