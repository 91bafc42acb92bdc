package index

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// compareVersions compares the resourceVersions of two objects of one resource. It returns false if they cannot be
// compared; the object that arrives last is then the current one.
func compareVersions(a, b metav1.Object) (order int, ok bool) {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return order, err == nil
}

// isOlder reports whether a is known to be older than b.
func isOlder(a, b metav1.Object) bool {
	order, ok := compareVersions(a, b)
	return ok && order < 0
}
