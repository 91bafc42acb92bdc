package oci

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push builds the image and puts it into a registry under the reference, such as
// registry.example.com/team/node:v1, with the credentials that `docker login` and its like leave behind.
// A registry on loopback is spoken to without TLS. It returns the reference by digest, which names
// these bytes whatever becomes of the tag.
func Push(ctx context.Context, reference string, image Image) (string, error) {
	target, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	built, err := image.Build(true)
	if err != nil {
		return "", err
	}
	if err := remote.Write(target, built, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	digest, err := built.Digest()
	if err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	return target.Context().Digest(digest.String()).String(), nil
}
