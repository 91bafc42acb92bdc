package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// ErrNoPolicy says that nothing is wanted of anybody: what runs is left as it is.
var ErrNoPolicy = errors.New("there is no ClusterPolicy " + v1alpha1.ClusterPolicyName)

// Catalog is everything that policies say, complete, at one moment.
type Catalog struct {
	Policy  *v1alpha1.ClusterPolicy
	Drivers []v1alpha1.NVIDIADriver
	input   render.Input
	// known are drivers that were asked for already.
	known map[driverKey]RenderedDriver
}

// driverKey tells driver sets apart: nodes of the same key get the same driver.
type driverKey struct {
	owner string
	host  render.Host
	vgpu  bool
}

// RenderedDriver is what render says of a driver set.
type RenderedDriver struct {
	Set    render.DriverSet
	Desired v1alpha1.DesiredDriver
	Err    error
}

// readCatalog reads the policies from the cache; errNoPolicy when there is none.
func readCatalog(ctx context.Context, c client.Reader, namespace string, images render.Images) (*Catalog, error) {
	policy := &v1alpha1.ClusterPolicy{}
	switch err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterPolicyName}, policy); {
	case apierrors.IsNotFound(err):
		return nil, ErrNoPolicy
	case err != nil:
		return nil, fmt.Errorf("read ClusterPolicy: %w", err)
	}
	list := &v1alpha1.NVIDIADriverList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list NVIDIADrivers: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.NVIDIADriver) int { return cmp.Compare(a.Name, b.Name) })
	policy.Spec = policy.Spec.Complete()
	var specs []v1alpha1.DriverSpec
	for i := range list.Items {
		list.Items[i].Spec.DriverSpec = list.Items[i].Spec.Complete()
		specs = append(specs, list.Items[i].Spec.DriverSpec)
	}
	cat := &Catalog{Policy: policy, Drivers: list.Items, known: map[driverKey]RenderedDriver{}}
	cat.input = render.Input{
		Namespace: namespace, Policy: *policy, Images: images, Contents: map[string]string{}, Keys: map[string][]string{},
	}
	for _, reference := range render.References(policy.Spec, specs) {
		if err := cat.readContent(ctx, c, reference); err != nil {
			return nil, err
		}
	}
	return cat, nil
}

// readContent hashes what a ConfigMap or Secret holds; one that does not exist has no hash.
func (cat *Catalog) readContent(ctx context.Context, c client.Reader, reference string) error {
	kind, name, _ := strings.Cut(reference, "/")
	key := types.NamespacedName{Namespace: cat.input.Namespace, Name: name}
	data := map[string][]byte{}
	var err error
	if kind == "Secret" {
		secret := &corev1.Secret{}
		err = c.Get(ctx, key, secret)
		data = secret.Data
	} else {
		config := &corev1.ConfigMap{}
		err = c.Get(ctx, key, config)
		maps.Copy(data, config.BinaryData)
		for k, text := range config.Data {
			data[k] = []byte(text)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", reference, err)
	}
	keys := slices.Sorted(maps.Keys(data))
	sum := sha256.New()
	for _, k := range keys {
		fmt.Fprintf(sum, "%d:%s%d:", len(k), k, len(data[k]))
		sum.Write(data[k])
	}
	cat.input.Contents[reference], cat.input.Keys[reference] = hex.EncodeToString(sum.Sum(nil)), keys
	return nil
}

// DriverFor returns the driver of a node with this hardware, as its assignment wants it; none where none is wanted or nothing is known yet.
func (cat *Catalog) DriverFor(a Assignment, hardware *v1alpha1.HardwareStatus) (RenderedDriver, bool) {
	if !a.InstallsDriver() || hardware == nil || hardware.OS == "" || hardware.HostDriver != "" && !a.VGPU {
		return RenderedDriver{}, false
	}
	set := render.DriverSet{Owner: a.Owner, Spec: a.Driver, VGPU: a.VGPU, Host: render.Host{OS: hardware.OS}}
	if a.Driver.UsePrecompiled {
		set.Host.Kernel = hardware.Kernel
	}
	key := driverKey{owner: a.Owner, host: set.Host, vgpu: a.VGPU}
	known, ok := cat.known[key]
	if !ok {
		known = RenderedDriver{Set: set}
		known.Desired, known.Err = render.Driver(cat.input, set)
		cat.known[key] = known
	}
	return known, true
}
