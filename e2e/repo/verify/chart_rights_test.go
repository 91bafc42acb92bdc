package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rights returns the permissions of an account, one line each: scope, group/resource[ names], verbs. The scope is * or a namespace.
// For built-in roles of the API server the name is listed.
func rights(t *testing.T, objects map[string][]runtime.Object, account string) []string {
	t.Helper()
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind && s.Name == account })
	}
	var lines []string
	grant := func(scope string, ref rbacv1.RoleRef, rules map[string][]rbacv1.PolicyRule) {
		own, ok := rules[ref.Kind+" "+ref.Name]
		if !ok {
			lines = append(lines, scope+" role "+ref.Name)
		}
		for _, rule := range own {
			lines = append(lines, lineOf(scope, rule)...)
		}
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range find[*rbacv1.ClusterRole](objects) {
		rules["ClusterRole "+r.Name] = r.Rules
	}
	for _, r := range find[*rbacv1.Role](objects) {
		rules["Role "+r.Name] = r.Rules
	}
	for _, b := range find[*rbacv1.ClusterRoleBinding](objects) {
		if ours(b.Subjects) {
			grant("*", b.RoleRef, rules)
		}
	}
	for _, b := range find[*rbacv1.RoleBinding](objects) {
		if ours(b.Subjects) {
			grant(b.Namespace, b.RoleRef, rules)
		}
	}
	slices.Sort(lines)
	return lines
}

// lineOf returns a line per resource of a rule.
func lineOf(scope string, rule rbacv1.PolicyRule) []string {
	var lines []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			line := strings.TrimPrefix(group+"/"+resource, "/")
			if len(rule.ResourceNames) > 0 {
				line += fmt.Sprint(rule.ResourceNames)
			}
			lines = append(lines, scope+" "+line+": "+strings.Join(rule.Verbs, " "))
		}
	}
	for _, url := range rule.NonResourceURLs {
		lines = append(lines, scope+" "+url+": "+strings.Join(rule.Verbs, " "))
	}
	return lines
}

// wanted are the permissions of every account of the chart, written out a second time, so that an extension fails the test.
func wanted() map[string][]string {
	const all, here, write = "get list watch", "tessera-system", "get list watch create patch delete"
	return map[string][]string{
		"tessera-crds": {
			"* apiextensions.k8s.io/customresourcedefinitions[clusterpolicies.tessera.dev gpunodes.tessera.dev nvidiadrivers.tessera.dev]: get create patch",
		},
		"tessera-discovery": {
			"* nodes: get",
			"* tessera.dev/gpunodes/status: patch",
			"* tessera.dev/gpunodes: get watch create",
		},
		"tessera-driver": nil,
		"tessera-installer": {
			"* admissionregistration.k8s.io/mutatingadmissionpolicybindings: " + all,
			"* admissionregistration.k8s.io/mutatingadmissionpolicybindings[schedulername.gpu.tessera.dev]: create patch delete",
			"* apiextensions.k8s.io/customresourcedefinitions[clusterpolicies.tessera.dev gpunodes.tessera.dev nvidiadrivers.tessera.dev]: get",
			"* authentication.k8s.io/tokenreviews: create",
			"* authorization.k8s.io/subjectaccessreviews: create",
			"* events.k8s.io/events: create patch",
			"* events: create patch",
			"* namespaces[tessera-system]: get patch",
			"* node.k8s.io/runtimeclasses: " + write,
			"* nodes: get list watch patch",
			"* pods/eviction: create",
			"* pods: get",
			"* resource.k8s.io/devicetaintrules: " + write,
			"* resource.k8s.io/resourceclaims: " + all,
			"* resource.k8s.io/resourceslices: list",
			"* tessera.dev/clusterpolicies/finalizers: update",
			"* tessera.dev/clusterpolicies/status: patch",
			"* tessera.dev/clusterpolicies: " + all,
			"* tessera.dev/gpunodes/status: patch",
			"* tessera.dev/gpunodes: " + write,
			"* tessera.dev/nvidiadrivers/status: patch",
			"* tessera.dev/nvidiadrivers: " + all,
			here + " apps/daemonsets: " + write,
			here + " apps/deployments: " + write,
			here + " configmaps: " + write,
			here + " coordination.k8s.io/leases: create",
			here + " coordination.k8s.io/leases[tessera-installer]: get update",
			here + " monitoring.coreos.com/servicemonitors: " + write,
			here + " pods: list watch create delete",
			here + " policy/poddisruptionbudgets: " + write,
			here + " resource.k8s.io/resourceclaims: create delete",
			here + " resource.k8s.io/resourceclaimtemplates: " + write,
			here + " secrets: " + all,
			here + " services: " + write,
		},
		"tessera-monitor": nil,
		"tessera-node": {
			"* authentication.k8s.io/tokenreviews: create",
			"* authorization.k8s.io/subjectaccessreviews: create",
			"* events: create patch",
			"* nodes: get",
			"* resource.k8s.io/resourceclaims/driver[gpu.tessera.dev]: associated-node:patch associated-node:update",
			"* resource.k8s.io/resourceclaims/status: patch",
			"* resource.k8s.io/resourceclaims: get",
			"* resource.k8s.io/resourceslices: get list watch create update patch delete",
			"* tessera.dev/gpunodes/status: patch",
			"* tessera.dev/gpunodes: " + all,
			here + " pods: get list create delete",
		},
		"tessera-scheduler": {
			"* role system:kube-scheduler",
			"* role system:volume-scheduler",
			"kube-system role extension-apiserver-authentication-reader",
			here + " coordination.k8s.io/leases[tessera-scheduler]: get update",
		},
		"tessera-validation": nil,
		"tessera-vgpu-device-manager": {
			"* nodes: " + all + " update",
			here + " pods: list",
		},
	}
}

func TestChartGivesNoOtherRights(t *testing.T) {
	objects := rendered(t)
	got := map[string][]string{}
	for _, account := range find[*corev1.ServiceAccount](objects) {
		got[account.Name] = rights(t, objects, account.Name)
	}
	if diff := cmp.Diff(wanted(), got); diff != "" {
		t.Errorf("rights by account (-want +got):\n%s", diff)
	}
	for _, b := range find[*rbacv1.ClusterRoleBinding](objects) {
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.ServiceAccountKind || s.Namespace != "tessera-system" {
				t.Errorf("%s is bound to %s %s/%s", b.Name, s.Kind, s.Namespace, s.Name)
			}
		}
	}
}

// TestChartHasNoWildcard: no rule of any variant has one, and none grants permissions on roles and bindings.
func TestChartHasNoWildcard(t *testing.T) {
	for name, flags := range variants() {
		objects := rendered(t, flags...)
		rules := map[string][]rbacv1.PolicyRule{}
		for _, r := range find[*rbacv1.ClusterRole](objects) {
			rules[r.Name] = r.Rules
			if r.AggregationRule != nil {
				t.Errorf("%s: %s aggregates other roles", name, r.Name)
			}
		}
		for _, r := range find[*rbacv1.Role](objects) {
			rules[r.Namespace+"/"+r.Name] = r.Rules
		}
		for _, role := range slices.Sorted(maps.Keys(rules)) {
			for _, rule := range rules[role] {
				for _, line := range lineOf("", rule) {
					if strings.Contains(line, "*") {
						t.Errorf("%s: %s may%s", name, role, line)
					}
				}
				for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("%s: %s may %s %v", name, role, verb, rule.Resources)
					}
				}
				for _, resource := range []string{"pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "roles", "clusterroles", "rolebindings", "clusterrolebindings", "nodes/proxy"} {
					if slices.Contains(rule.Resources, resource) {
						t.Errorf("%s: %s has a right to %s", name, role, resource)
					}
				}
			}
		}
	}
}
