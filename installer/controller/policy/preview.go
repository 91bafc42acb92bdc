package policy

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/controller/catalog"
	"github.com/tessera-gpu/tessera/installer/controller/informers"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// Edit has the edited policies. Each replaces the one of its name or is added.
type Edit struct {
	Policy  *v1alpha1.ClusterPolicy
	Drivers []v1alpha1.NVIDIADriver
}

// Preview is what an edit would do.
type Preview struct {
	// Plans has the rollout plans by the owners of drivers: catalog.PolicyOwner and names of NVIDIADrivers.
	Plans map[string]v1alpha1.Plan
	// Problems are the messages of drivers that cannot be rendered.
	Problems []string
}

// PreviewEdit returns what an edit would do to nodes and pods. It uses the code of the installer, for an installer with this namespace and these images. It
// reads from the API server through c, including the Secrets that drivers reference, and writes nothing.
func PreviewEdit(ctx context.Context, c client.Client, namespace string, images render.Images, edit Edit) (Preview, error) {
	edited := &editedClient{Client: c, edit: edit}
	r := &Reconciler{Config: Config{Cluster: action.Cluster{Client: edited, Namespace: namespace}}}
	cat, err := catalog.NewSource(edited, namespace, images).Read(ctx)
	if err != nil {
		return Preview{}, err
	}
	p := newPass(cat)
	if err := r.readMembers(ctx, p); err != nil {
		return Preview{}, err
	}
	preview := Preview{Plans: map[string]v1alpha1.Plan{}}
	for _, owner := range p.owners() {
		preview.Plans[owner] = rollout.Next(p.rolloutFleet(owner)).Plan
	}
	for _, f := range p.faults {
		preview.Problems = append(preview.Problems, f.message)
	}
	return preview, nil
}

// editedClient reads the cluster as it would be after an edit, in the form of the installer's cache.
type editedClient struct {
	client.Client
	edit Edit
	// claims are all claims, read once.
	claims *resourceapi.ResourceClaimList
}

// Get reads one object. Values of Secrets are replaced by their hashes.
func (f *editedClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if policy, ok := into.(*v1alpha1.ClusterPolicy); ok && f.edit.Policy != nil {
		f.edit.Policy.DeepCopyInto(policy)
		return nil
	}
	if err := f.Client.Get(ctx, key, into, options...); err != nil {
		return err
	}
	if secret, ok := into.(*corev1.Secret); ok {
		_, err := informers.HashSecretValues(secret)
		return err
	}
	return nil
}

// List reads objects of a kind.
func (f *editedClient) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if claims, ok := into.(*resourceapi.ResourceClaimList); ok {
		return f.listClaims(ctx, claims, options)
	}
	if err := f.Client.List(ctx, into, options...); err != nil {
		return err
	}
	if drivers, ok := into.(*v1alpha1.NVIDIADriverList); ok {
		for _, edited := range f.edit.Drivers {
			drivers.Items = slices.DeleteFunc(drivers.Items, func(d v1alpha1.NVIDIADriver) bool { return d.Name == edited.Name })
			drivers.Items = append(drivers.Items, edited)
		}
	}
	return nil
}

// listClaims lists the claims of one pool, for which the API server has no index.
func (f *editedClient) listClaims(ctx context.Context, into *resourceapi.ResourceClaimList, options []client.ListOption) error {
	if f.claims == nil {
		all := &resourceapi.ResourceClaimList{}
		if err := f.Client.List(ctx, all); err != nil {
			return err
		}
		f.claims = all
	}
	filter := (&client.ListOptions{}).ApplyOptions(options)
	pool, ok := "", filter.FieldSelector != nil
	if ok {
		pool, ok = filter.FieldSelector.RequiresExactMatch(informers.IndexClaimPool)
	}
	if !ok {
		return errors.New("list claims: a filter by one pool is required")
	}
	for _, claim := range f.claims.Items {
		if slices.Contains(informers.ClaimPools(&claim), pool) {
			into.Items = append(into.Items, claim)
		}
	}
	return nil
}
