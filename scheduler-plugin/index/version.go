package index

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// compareVersions compares the resourceVersions of two objects of one resource, and returns false when
// they cannot be compared: then the one that comes last counts.
func compareVersions(a, b metav1.Object) (order int, ok bool) {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return order, err == nil
}

// isOlder reports whether a is known to be older than b.
func isOlder(a, b metav1.Object) bool {
	order, ok := compareVersions(a, b)
	return ok && order < 0
}
