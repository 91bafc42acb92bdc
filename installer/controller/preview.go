package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/installer/rollout"
)

// Edit is policies as they would be: each in the place of the one of its name, or beside the others.
type Edit struct {
	Policy  *v1alpha1.ClusterPolicy
	Drivers []v1alpha1.NVIDIADriver
}

// Preview is what an edit would do.
type Preview struct {
	// Plans are those of the owners of drivers: ClusterPolicy/default, and NVIDIADrivers by their names.
	Plans map[string]v1alpha1.Plan
	// Problems are why a driver would be unknown, for people.
	Problems []string
}

// PreviewEdit says what an edit would do to nodes and pods, by the same steps as the installer that has its objects in the namespace and these
// images. It reads live objects through c, Secrets that drivers name among them, and writes nothing.
func PreviewEdit(ctx context.Context, c client.Client, namespace string, images render.Images, edit Edit) (Preview, error) {
	r := &policyReconciler{Cluster: action.Cluster{Client: &editedClient{Client: c, edit: edit}, Namespace: namespace}}
	cat, err := readCatalog(ctx, r.Client, namespace, images)
	if err != nil {
		return Preview{}, err
	}
	p := &pass{Catalog: cat, now: time.Now()}
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

// editedClient reads a cluster as it would be after an edit, in the form in which the installer's cache has it.
type editedClient struct {
	client.Client
	edit Edit
	// claims are all claims, read once.
	claims *resourceapi.ResourceClaimList
}

// Get reads one object.
func (f *editedClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if policy, ok := into.(*v1alpha1.ClusterPolicy); ok && f.edit.Policy != nil {
		f.edit.Policy.DeepCopyInto(policy)
		return nil
	}
	if err := f.Client.Get(ctx, key, into, options...); err != nil {
		return err
	}
	if secret, ok := into.(*corev1.Secret); ok {
		_, err := HashSecretValues(secret)
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

// listClaims lists those of one pool, for which the API server has no index.
func (f *editedClient) listClaims(ctx context.Context, into *resourceapi.ResourceClaimList, options []client.ListOption) error {
	if f.claims == nil {
		all := &resourceapi.ResourceClaimList{}
		if err := f.Client.List(ctx, all); err != nil {
			return err
		}
		f.claims = all
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	pool, ok := "", asked.FieldSelector != nil
	if ok {
		pool, ok = asked.FieldSelector.RequiresExactMatch(IndexClaimPool)
	}
	if !ok {
		return errors.New("list claims: only those of one pool can be asked for")
	}
	for _, claim := range f.claims.Items {
		if slices.Contains(ClaimPools(&claim), pool) {
			into.Items = append(into.Items, claim)
		}
	}
	return nil
}
