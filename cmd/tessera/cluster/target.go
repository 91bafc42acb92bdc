package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Kind is one of Tessera's kinds, in lower case, as an argument names it.
type Kind string

// The kinds of objects that verbs change.
const (
	Policy  Kind = "clusterpolicy"
	Driver  Kind = "nvidiadriver"
	GPUNode Kind = "gpunode"
)

// resource returns the name of the kind's resource.
func (k Kind) resource() string {
	if k == Policy {
		return "clusterpolicies"
	}
	return string(k) + "s"
}

// shortName returns the short name of the kind's CRD.
func (k Kind) shortName() string {
	return map[Kind]string{Policy: "gpupolicy", Driver: "gpudriver", GPUNode: "gn"}[k]
}

// Target is an object that a verb changes.
type Target struct {
	Kind Kind
	Name string
}

// String returns the target in the form of kubectl.
func (t Target) String() string {
	return string(t.Kind) + "." + v1alpha1.GroupVersion.Group + "/" + t.Name
}

// ParseTarget returns the target that the arguments name as KIND/NAME. Without arguments, it is the ClusterPolicy.
func ParseTarget(args []string, kinds ...Kind) (Target, error) {
	if len(args) == 0 {
		return Target{Policy, v1alpha1.ClusterPolicyName}, nil
	}
	kind, name, ok := strings.Cut(args[0], "/")
	// kubectl prints the kind with its group.
	kind, _, _ = strings.Cut(kind, ".")
	for _, k := range kinds {
		if ok && name != "" && slices.Contains([]string{string(k), k.resource(), k.shortName()}, strings.ToLower(kind)) {
			return Target{k, name}, nil
		}
	}
	var forms []string
	for _, k := range kinds {
		forms = append(forms, string(k)+"/NAME")
	}
	return Target{}, fmt.Errorf("%q: must be %s", args[0], strings.Join(forms, " or "))
}

// TargetNames returns a Completer with the objects of the kinds.
func TargetNames(kinds ...Kind) Completer {
	return func(ctx context.Context, c *Cluster, _ string) ([]string, error) {
		var names []string
		for _, k := range kinds {
			list, err := c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(k.resource())).List(ctx, metav1.ListOptions{})
			if err != nil {
				return names, err
			}
			for _, object := range list.Items {
				names = append(names, string(k)+"/"+object.GetName())
			}
		}
		return names, nil
	}
}

// Read reads the target into the object.
func (c *Cluster) Read(ctx context.Context, t Target, into any) error {
	found, err := c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(t.Kind.resource())).Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !namesObject(err):
		return fmt.Errorf("read %s: %w\nThe CRD is missing: check that the installer's chart is installed", t, err)
	case err != nil:
		return ExplainError("read "+t.String(), err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(found.UnstructuredContent(), into)
}

// Change is a change of an object by a verb.
type Change struct {
	Target Target
	// Fields is a JSON merge patch.
	Fields map[string]any
}

// Annotate returns a change of one annotation. A nil value removes it.
func Annotate(t Target, key string, value *string) Change {
	return Change{t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}}
}

// DryRun is the value of the flag --dry-run.
type DryRun string

// Add defines the flag.
func (d *DryRun) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(d), "dry-run", "none", "none, or server: the API server validates the change and stores nothing")
	// Registering fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "server"}, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error for an unknown value.
func (d *DryRun) Validate() error {
	if !slices.Contains([]DryRun{"none", "server"}, *d) {
		return fmt.Errorf("--dry-run %q: must be one of none, server", *d)
	}
	return nil
}

// Suffix ends the line about a change.
func (d *DryRun) Suffix() string {
	if *d == "server" {
		return " (server dry run)"
	}
	return ""
}

// Apply patches the object.
func (c *Cluster) Apply(ctx context.Context, change Change, dryRun DryRun) error {
	patch, err := json.Marshal(change.Fields)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "tessera-cli"}
	if dryRun == "server" {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err = c.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(change.Target.Kind.resource())).
		Patch(ctx, change.Target.Name, types.MergePatchType, patch, options)
	return ExplainError("change "+change.Target.String(), err)
}
