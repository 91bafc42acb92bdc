package controllertest

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrRefused is the error of a client that Refuse returns.
var ErrRefused = errors.New("refused")

// IsA returns a function that reports whether an object or list has this type.
func IsA[T any]() func(any) bool {
	return func(o any) bool { _, is := o.(T); return is }
}

// Refuse returns a client whose API server refuses reads and patches of the objects and lists that the functions report; nil: none.
func Refuse(c client.WithWatch, reads, writes func(any) bool) client.WithWatch {
	refused := func(refuses func(any) bool, o any) error {
		if refuses != nil && refuses(o) {
			return ErrRefused
		}
		return nil
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, base client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := refused(reads, o); err != nil {
				return err
			}
			return base.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, base client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := refused(reads, list); err != nil {
				return err
			}
			return base.List(ctx, list, options...)
		},
		Patch: func(ctx context.Context, base client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := refused(writes, o); err != nil {
				return err
			}
			return base.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, base client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			if err := refused(writes, o); err != nil {
				return err
			}
			return base.SubResource(sub).Patch(ctx, o, patch, options...)
		},
	})
}
