package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// TestSchedulerIsWhoHoldsItsRights checks that the user of the lab's scheduler certificate is the service account that
// deployments/ binds.
func TestSchedulerIsWhoHoldsItsRights(t *testing.T) {
	bindings, err := schedulerBindings()
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]bool{}
	for _, binding := range bindings {
		var subjects []rbacv1.Subject
		switch b := binding.(type) {
		case *rbacv1.ClusterRoleBinding:
			subjects, roles[b.RoleRef.Name] = b.Subjects, true
		case *rbacv1.RoleBinding:
			subjects, roles[b.Namespace+"/"+b.RoleRef.Name] = b.Subjects, true
		}
		for _, s := range subjects {
			if user := "system:serviceaccount:" + s.Namespace + ":" + s.Name; user != recipe.SchedulerUser {
				t.Errorf("%s holds rights, the lab's scheduler is %s", user, recipe.SchedulerUser)
			}
		}
	}
	want := map[string]bool{"system:kube-scheduler": true, "system:volume-scheduler": true, "kube-system/extension-apiserver-authentication-reader": true}
	if diff := cmp.Diff(want, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
}
