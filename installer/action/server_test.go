package action

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

const ownNamespace = "tessera-system"

var errRefused = errors.New("refused")

// server is a fake API server that records writes and can fail requests.
type server struct {
	*testing.T
	client.WithWatch
	// writes has verb, type and name of each write that was requested.
	writes []string
	// fail returns the error of a request; verbs are get, list, create, patch and delete.
	fail func(verb string, object runtime.Object) error
}

func newServer(t *testing.T, objects ...client.Object) (*server, Cluster) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &server{T: t}
	before := func(verb string, object runtime.Object) error {
		if o, ok := object.(client.Object); ok && verb != "get" {
			s.writes = append(s.writes, fmt.Sprintf("%s %T %s", verb, object, o.GetName()))
		}
		if s.fail != nil {
			return s.fail(verb, object)
		}
		return nil
	}
	base := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.GPUNode{}, &v1alpha1.ClusterPolicy{}, &v1alpha1.NVIDIADriver{}).Build()
	s.WithWatch = interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := before("get", o); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := before("list", list); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := before("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := before("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := before("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := before("patch", o); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
	return s, Cluster{Client: s, Live: s, Namespace: ownNamespace}
}

// failing makes all requests with a verb fail.
func (s *server) failing(verb string) {
	s.fail = func(v string, _ runtime.Object) error {
		if v == verb {
			return errRefused
		}
		return nil
	}
}

// read reads an object of the namespace of the installer, or one without a namespace.
func read[T client.Object](s *server, namespace, name string, object T) T {
	s.Helper()
	fail := s.fail
	s.fail = nil
	defer func() { s.fail = fail }()
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		s.Fatal(err)
	}
	return object
}

// exists reports whether an object exists.
func exists(s *server, namespace, name string, object client.Object) bool {
	s.Helper()
	return s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object) == nil
}

// mustFail checks that an action returns the error of the request that failed.
func mustFail(t *testing.T, action string, err error) {
	t.Helper()
	if !errors.Is(err, errRefused) {
		t.Errorf("%s: got error %v, want that of the API server", action, err)
	}
}
