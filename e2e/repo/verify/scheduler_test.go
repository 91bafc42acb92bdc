package verify

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/scheduler-plugin/plugin/config"
)

// The folders of the scheduler's components.
const (
	schedulerCommon     = "deployments/scheduler/common"
	schedulerAdditional = "deployments/scheduler/additional"
)

const schedulerAccount = "system:serviceaccount:tessera-system:tessera-scheduler"

// TestSchedulerHasNoOtherRights writes its permissions out a second time: kube-scheduler's own, and a
// lease.
func TestSchedulerHasNoOtherRights(t *testing.T) {
	objects := manifests(t, schedulerCommon)
	account := one[*corev1.ServiceAccount](t, objects)
	if got := "system:serviceaccount:" + account.Namespace + ":" + account.Name; got != schedulerAccount {
		t.Errorf("the scheduler is %s, want %s", got, schedulerAccount)
	}
	if got := one[*appsv1.Deployment](t, objects).Spec.Template.Spec.ServiceAccountName; got != account.Name {
		t.Errorf("the Deployment runs as %s", got)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	got := map[string]string{} // the roles by binding
	for _, b := range find[*rbacv1.ClusterRoleBinding](objects) {
		got[b.Name] = b.RoleRef.Name
		if diff := cmp.Diff(subjects, b.Subjects); diff != "" {
			t.Errorf("holders of %s (-want +got):\n%s", b.Name, diff)
		}
	}
	for _, b := range find[*rbacv1.RoleBinding](objects) {
		got[b.Namespace+"/"+b.Name] = b.RoleRef.Name
		if diff := cmp.Diff(subjects, b.Subjects); diff != "" {
			t.Errorf("holders of %s (-want +got):\n%s", b.Name, diff)
		}
	}
	want := map[string]string{
		"tessera-scheduler:kube-scheduler":   "system:kube-scheduler",
		"tessera-scheduler:volume-scheduler": "system:volume-scheduler",
		"kube-system/tessera-scheduler":      "extension-apiserver-authentication-reader",
		"tessera-system/tessera-scheduler":   "tessera-scheduler",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("roles by binding (-want +got):\n%s", diff)
	}
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"tessera-scheduler"}, Verbs: []string{"get", "update"},
	}}
	if diff := cmp.Diff(rules, one[*rbacv1.Role](t, objects).Rules); diff != "" {
		t.Errorf("rules of the scheduler's role (-want +got):\n%s", diff)
	}
	if roles := find[*rbacv1.ClusterRole](objects); len(roles) > 0 {
		t.Errorf("%d own cluster roles, want none", len(roles))
	}
}

// TestSchedulerSurvivesANode: there is a standby, on another node where possible, and both are not drained
// at once.
func TestSchedulerSurvivesANode(t *testing.T) {
	objects := manifests(t, schedulerCommon)
	deployment := one[*appsv1.Deployment](t, objects)
	if *deployment.Spec.Replicas < 2 || deployment.Spec.Template.Spec.Affinity.PodAntiAffinity == nil {
		t.Error("all schedulers can run on one node")
	}
	budget := one[*policyv1.PodDisruptionBudget](t, objects)
	if diff := cmp.Diff(deployment.Spec.Selector, budget.Spec.Selector); diff != "" {
		t.Errorf("pods of the budget (-Deployment's +budget's):\n%s", diff)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if container.Image != bundle.SchedulerImage {
		t.Errorf("image %s, want %s", container.Image, bundle.SchedulerImage)
	}
	if !*deployment.Spec.Template.Spec.SecurityContext.RunAsNonRoot || !*container.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("it needs neither root nor a disk")
	}
}

// allocatedTo is a claim whose devices are of the drivers; without drivers it is not allocated.
func allocatedTo(drivers ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n"}}
	if len(drivers) == 0 {
		return claim
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	for _, driver := range drivers {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: driver, Pool: "p", Device: "d"})
	}
	return claim
}

// TestOneSchedulerAllocates evaluates the policy on allocations as the API server does.
func TestOneSchedulerAllocates(t *testing.T) {
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, manifests(t, schedulerCommon), "allocations.gpu.tessera.dev")
	judge := compile(t, policy, target{
		resource:    resourceapi.SchemeGroupVersion.WithResource("resourceclaims"),
		kind:        resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
		subresource: "status",
	})
	ours := v1alpha1.DriverName
	scheduler, stock := &user.DefaultInfo{Name: schedulerAccount}, &user.DefaultInfo{Name: "system:kube-scheduler"}
	controller := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:resource-claim-controller"}
	reserved := allocatedTo(ours)
	reserved.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u"}}
	reported := allocatedTo(ours)
	reported.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: ours, Pool: "p", Device: "d"}}
	empty := allocatedTo()
	empty.Status.Allocation = &resourceapi.AllocationResult{}
	tests := map[string]struct {
		who           user.Info
		before, after *resourceapi.ResourceClaim
		refused       bool
	}{
		"ours allocates":                           {scheduler, allocatedTo(), allocatedTo(ours), false},
		"the stock scheduler does not":             {stock, allocatedTo(), allocatedTo(ours), true},
		"not even among others":                    {stock, allocatedTo(), allocatedTo("nic.example.com", ours), true},
		"an administrator does not":                {admin, allocatedTo(), allocatedTo(ours), true},
		"the stock one allocates what is not ours": {stock, allocatedTo(), allocatedTo("nic.example.com"), false},
		"the stock one allocates nothing":          {stock, allocatedTo(), empty, false},
		"the stock one reserves for one more pod":  {stock, allocatedTo(ours), reserved, false},
		"the controller takes a reservation back":  {controller, reserved, allocatedTo(ours), false},
		"the controller ends an allocation":        {controller, reserved, allocatedTo(), false},
		"the agent writes the device's status":     {agent, allocatedTo(ours), reported, false},
		"a claim without status is not restricted": {stock, allocatedTo(), allocatedTo(), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(judge(t, test.who, admission.Update, test.after, test.before), "\n")
			if !test.refused && got != "" {
				t.Errorf("refused: %s", got)
			}
			for _, want := range []string{test.who.GetName() + " may not allocate devices of " + ours, "schedulerName: tessera-scheduler"} {
				if test.refused && !strings.Contains(got, want) {
					t.Errorf("refusal: %q, want %q in it", got, want)
				}
			}
		})
	}
}

// TestAdditionalTaintsWhatThePluginIgnores: the taint of the rule is the one that mode Additional ignores.
func TestAdditionalTaintsWhatThePluginIgnores(t *testing.T) {
	rule := one[*resourceapi.DeviceTaintRule](t, manifests(t, schedulerAdditional))
	if rule.Spec.Taint.Key != v1alpha1.TaintScheduler || rule.Spec.Taint.Effect != resourceapi.DeviceTaintEffectNoSchedule {
		t.Errorf("taint %+v, want %s that keeps pods away and ends none", rule.Spec.Taint, v1alpha1.TaintScheduler)
	}
	if rule.Spec.DeviceSelector == nil || rule.Spec.DeviceSelector.Driver == nil || *rule.Spec.DeviceSelector.Driver != v1alpha1.DriverName {
		t.Errorf("devices %+v, want all of %s", rule.Spec.DeviceSelector, v1alpha1.DriverName)
	}
}

// TestEverySchedulerPolicyIsBound: a policy without a binding has no effect.
func TestEverySchedulerPolicyIsBound(t *testing.T) {
	validating := manifests(t, schedulerCommon)
	for _, policy := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](validating) {
		binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, validating, policy.Name)
		if diff := cmp.Diff([]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}, binding.Spec.ValidationActions); diff != "" || binding.Spec.PolicyName != policy.Name {
			t.Errorf("the binding of %s: %+v", policy.Name, binding.Spec)
		}
	}
	additional := manifests(t, schedulerAdditional)
	for _, policy := range find[*admissionregistrationv1.MutatingAdmissionPolicy](additional) {
		if binding := named[*admissionregistrationv1.MutatingAdmissionPolicyBinding](t, additional, policy.Name); binding.Spec.PolicyName != policy.Name {
			t.Errorf("the binding of %s: %+v", policy.Name, binding.Spec)
		}
		if *policy.Spec.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("%s applies to all namespaces: an error of it must not reject their pods", policy.Name)
		}
	}
}

// TestSchedulerPageNamesEveryArgument: the page for administrators lists all configuration.
func TestSchedulerPageNamesEveryArgument(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "scheduler.md"))
	if err != nil {
		t.Fatal(err)
	}
	args := reflect.TypeFor[config.TesseraDynamicResourcesArgs]()
	for i := range args.NumField() {
		name, _, _ := strings.Cut(args.Field(i).Tag.Get("json"), ",")
		if name != "" && !strings.Contains(string(page), "`"+name) {
			t.Errorf("docs/scheduler.md does not name the argument %s", name)
		}
	}
}
