package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/installer/action"
	"github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/internal/capability"
)

// establishLimit limits the wait until the API server serves a kind.
const establishLimit = time.Minute

// crdsCommand applies the CRDs of this release.
func crdsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "crds",
		Short: "Apply the CRDs of this release and wait until they are served",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			access, err := o.access()
			if err != nil {
				return err
			}
			if _, err := capability.Read(access); err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			if err := apiextensions.AddToScheme(scheme); err != nil {
				return err
			}
			c, err := client.New(access, client.Options{Scheme: scheme})
			if err != nil {
				return err
			}
			return applyCRDs(cmd.Context(), c, cmd)
		},
	}
}

// printer prints the progress of a command.
type printer interface{ Printf(format string, i ...any) }

func applyCRDs(ctx context.Context, c client.Client, out printer) error {
	list, err := crds.Load()
	if err != nil {
		return err
	}
	for _, crd := range list {
		newer, err := newerThan(ctx, c, crd)
		if err != nil {
			return err
		}
		if len(newer) > 0 {
			out.Printf("%s is from a newer release, which also has %s; it is not changed\n", crd.Name, strings.Join(newer, ", "))
			continue
		}
		if err := applyCRD(ctx, c, crd); err != nil {
			return fmt.Errorf("apply CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range list {
		if err := established(ctx, c, crd.Name); err != nil {
			return err
		}
		out.Printf("%s is served\n", crd.Name)
	}
	return nil
}

// newerThan returns the fields of the CRD in the cluster that are absent from this release. Applying this release's CRD would make the API server drop
// their values.
func newerThan(ctx context.Context, c client.Client, crd *apiextensions.CustomResourceDefinition) ([]string, error) {
	live := &apiextensions.CustomResourceDefinition{}
	switch err := c.Get(ctx, client.ObjectKeyFromObject(crd), live); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read CRD %s: %w", crd.Name, err)
	}
	return crds.Compare(live, crd).Unknown, nil
}

// lacks returns the fields of this release that the CRD in the cluster lacks.
func lacks(crd *unstructured.Unstructured) ([]string, error) {
	list, err := crds.Load()
	if err != nil {
		return nil, err
	}
	cluster := &apiextensions.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, cluster); err != nil {
		return nil, fmt.Errorf("read CRD %s: %w", crd.GetName(), err)
	}
	for _, release := range list {
		if release.Name == crd.GetName() {
			return crds.Compare(cluster, release).Missing, nil
		}
	}
	return nil, fmt.Errorf("%s is not a CRD of this release", crd.GetName())
}

// applyCRD applies a CRD without its status, which the API server owns.
func applyCRD(ctx context.Context, c client.Client, crd *apiextensions.CustomResourceDefinition) error {
	crd.APIVersion, crd.Kind = apiextensions.SchemeGroupVersion.String(), "CustomResourceDefinition"
	data, err := json.Marshal(struct {
		*apiextensions.CustomResourceDefinition
		Status any `json:"status,omitempty"`
	}{CustomResourceDefinition: crd})
	if err != nil {
		return err
	}
	return c.Patch(ctx, crd.DeepCopy(), client.RawPatch(types.ApplyPatchType, data), client.FieldOwner(action.Manager), client.ForceOwnership)
}

// established waits until a kind is served.
func established(ctx context.Context, c client.Client, name string) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, establishLimit, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := c.Get(ctx, types.NamespacedName{Name: name}, crd); err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensions.Established && condition.Status == apiextensions.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("wait until CRD %s is served: %w", name, err)
	}
	return nil
}
