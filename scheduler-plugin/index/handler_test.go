package index

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestHandler checks which informer events are passed on: objects, the last known objects of missed deletions, and
// nothing else.
func TestHandler(t *testing.T) {
	t.Parallel()
	var got []string
	h := newHandler(
		func(s *resourceapi.ResourceSlice) { got = append(got, "set "+s.Name) },
		func(s *resourceapi.ResourceSlice) { got = append(got, "delete "+s.Name) },
	)
	slice := func(name string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	h.OnAdd(slice("a"), true)
	h.OnUpdate(slice("a"), slice("b"))
	h.OnDelete(slice("b"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "c", Obj: slice("c")})
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "d"})
	h.OnAdd(nil, false)
	h.OnAdd((*resourceapi.ResourceSlice)(nil), false)
	if want := []string{"set a", "set b", "delete b", "delete c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
