package policies

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tessera-gpu/tessera/installer/crds"
)

// judge is what the API server makes of a CRD to look at objects.
type judge struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// judges are one per kind.
var judges = sync.OnceValues(func() (map[string]judge, error) {
	list, err := crds.Load()
	if err != nil {
		return nil, err
	}
	all := map[string]judge{}
	for _, crd := range list {
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
			return nil, err
		}
		structural, err := schema.NewStructural(internal)
		if err != nil {
			return nil, err
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			return nil, err
		}
		all[crd.Spec.Names.Kind] = judge{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	return all, nil
})

// Verdict returns the error of an API server with our CRDs, with strict decoding, for an object that is created (before is nil) or
// edited; nil: it is accepted. It runs the API server's own code, without the server.
func Verdict(ctx context.Context, object, before *unstructured.Unstructured) error {
	all, err := judges()
	if err != nil {
		return err
	}
	j, ok := all[object.GetKind()]
	if !ok {
		return fmt.Errorf("validate %s %s: there is no such kind", object.GetKind(), object.GetName())
	}
	content := runtime.DeepCopyJSON(object.Object)
	var old any
	if before != nil {
		old = before.Object
	}
	options := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if unknown := pruning.PruneWithOptions(content, j.structural, true, options); len(unknown) > 0 {
		return fmt.Errorf("unknown field %q", unknown[0])
	}
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, content, old, j.schema)...)
	} else {
		errs = append(errs, validation.ValidateCustomResource(nil, content, j.schema)...)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, content)...)
	if len(errs) == 0 { // the server does not run rules on what has not the right form
		violated, _ := j.rules.Validate(ctx, nil, j.structural, content, old, celconfig.RuntimeCELCostBudget)
		errs = append(errs, violated...)
	}
	return errs.ToAggregate()
}
