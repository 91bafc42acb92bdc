package catalog

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
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// ErrNoPolicy reports that there is no ClusterPolicy, or that it is being deleted. A deletion in the foreground ends when its objects are deleted; they
// must not be created again in the meantime.
var ErrNoPolicy = errors.New("there is no ClusterPolicy " + v1alpha1.ClusterPolicyName)

// Source reads catalogs. It computes one when the spec of a policy, or a ConfigMap or Secret that is referenced, differs from the last read, and else
// returns the last one with the present metadata and status of the policies. It is safe for concurrent use.
//
// Each Read compares versions with the reader, so a catalog is never older than the cache that it was read from; nothing needs to be invalidated.
type Source struct {
	reader    client.Reader
	namespace string
	images    render.Images
	render    func(render.Input, render.DriverSet) (v1alpha1.DesiredDriver, error)

	// withoutScheduler switches tessera-scheduler off, whatever the policy has.
	withoutScheduler bool

	// mutex is held during a whole Read: otherwise a slow reader could replace a newer catalog by an older one.
	mutex sync.Mutex
	// last is the computed part that the last Read returned, specs and contents are the versions that it was computed from.
	last            *computed
	specs, contents string
}

// NewSource returns a Source that reads from a cache.
func NewSource(reader client.Reader, namespace string, images render.Images) *Source {
	return &Source{reader: reader, namespace: namespace, images: images, render: render.Driver}
}

// WithoutScheduler makes the source switch tessera-scheduler off, because it cannot run in the cluster. It returns the source.
func (s *Source) WithoutScheduler() *Source {
	s.withoutScheduler = true
	return s
}

// Read returns the catalog of the present policies; ErrNoPolicy when there is no ClusterPolicy, or when it is being deleted.
func (s *Source) Read(ctx context.Context) (*Catalog, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	c, err := s.readPolicies(ctx)
	if err != nil {
		return nil, err
	}
	specs, now := specVersions(c), s.last
	if now == nil || specs != s.specs {
		now = s.complete(c.Policy.Spec, c.Drivers)
	}
	var read []content
	versions := make([]string, 0, len(now.references))
	for _, reference := range now.references {
		one, err := s.readContent(ctx, reference)
		if err != nil {
			return nil, err
		}
		read, versions = append(read, one), append(versions, one.version)
	}
	contents := strings.Join(versions, ",")
	if now != s.last || contents != s.contents {
		now = &computed{
			spec: now.spec, schedulerOff: now.schedulerOff, drivers: now.drivers, references: now.references, render: s.render, rendered: map[DriverKey]RenderedDriver{},
		}
		now.input = render.Input{Namespace: s.namespace, Images: s.images, Contents: map[string]string{}, Keys: map[string][]string{}}
		now.input.Policy.Name, now.input.Policy.Spec = c.Policy.Name, now.spec
		for i, reference := range now.references {
			if read[i].exists {
				now.input.Contents[reference], now.input.Keys[reference] = read[i].hash()
			}
		}
		s.last, s.specs, s.contents = now, specs, contents
	}
	c.computed = s.last
	c.share()
	return c, nil
}

// complete returns the computed part of specs, without contents.
func (s *Source) complete(spec v1alpha1.ClusterPolicySpec, drivers []v1alpha1.NVIDIADriver) *computed {
	off := s.withoutScheduler && spec.Scheduler.On()
	if off {
		spec.Scheduler.Enabled = new(false)
	}
	c := complete(spec, drivers)
	c.schedulerOff = off
	return c
}

// readPolicies returns the policies as they are read, with their specs incomplete.
func (s *Source) readPolicies(ctx context.Context) (*Catalog, error) {
	policy := &v1alpha1.ClusterPolicy{}
	switch err := s.reader.Get(ctx, types.NamespacedName{Name: v1alpha1.ClusterPolicyName}, policy); {
	case apierrors.IsNotFound(err):
		return nil, ErrNoPolicy
	case err != nil:
		return nil, fmt.Errorf("read ClusterPolicy: %w", err)
	case policy.DeletionTimestamp != nil:
		return nil, ErrNoPolicy
	}
	list := &v1alpha1.NVIDIADriverList{}
	if err := s.reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list NVIDIADrivers: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.NVIDIADriver) int { return cmp.Compare(a.Name, b.Name) })
	return &Catalog{Policy: policy, Drivers: list.Items}, nil
}

// specVersions identifies the specs of policies.
func specVersions(c *Catalog) string {
	version := func(o client.Object) string {
		return fmt.Sprintf("%s/%s/%d", o.GetName(), o.GetUID(), o.GetGeneration())
	}
	all := []string{version(c.Policy)}
	for i := range c.Drivers {
		all = append(all, version(&c.Drivers[i]))
	}
	return strings.Join(all, ",")
}

// content is what a ConfigMap or Secret holds. It belongs to the cache.
type content struct {
	exists  bool
	version string
	config  *corev1.ConfigMap
	secret  *corev1.Secret
}

// readContent reads a reference, written as kind/name. One that does not exist has no content.
func (s *Source) readContent(ctx context.Context, reference string) (content, error) {
	kind, name, _ := strings.Cut(reference, "/")
	c := content{config: &corev1.ConfigMap{}, secret: &corev1.Secret{}}
	var object client.Object = c.config
	if kind == "Secret" {
		object = c.secret
	}
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, object, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("read %s: %w", reference, err)
	}
	c.exists, c.version = true, string(object.GetUID())+"/"+object.GetResourceVersion()
	return c, nil
}

// hash returns a hash of the content and its keys, sorted.
func (c content) hash() (string, []string) {
	data := map[string][]byte{}
	maps.Copy(data, c.secret.Data)
	maps.Copy(data, c.config.BinaryData)
	for key, text := range c.config.Data {
		data[key] = []byte(text)
	}
	keys, sum := slices.Sorted(maps.Keys(data)), sha256.New()
	for _, key := range keys {
		fmt.Fprintf(sum, "%d:%s%d:", len(key), key, len(data[key]))
		sum.Write(data[key])
	}
	return hex.EncodeToString(sum.Sum(nil)), keys
}
