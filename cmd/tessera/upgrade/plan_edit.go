package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/installer/controller/policy"
	"github.com/tessera-gpu/tessera/installer/render"
)

// The chart's ConfigMap with the images of the installed release.
const (
	imagesName = "tessera-installer-images"
	imagesKey  = "images.yaml"
)

// preview returns the report for the policies in the files as if they were applied.
func preview(ctx context.Context, c client.Client, namespace string, files []string, in io.Reader) (Report, error) {
	edit, err := readEdit(files, in)
	if err != nil {
		return Report{}, err
	}
	if err := mergeLive(ctx, c, &edit); err != nil {
		return Report{}, err
	}
	images, err := readImages(ctx, c, namespace)
	if err != nil {
		return Report{}, err
	}
	result, err := policy.PreviewEdit(ctx, c, namespace, images, edit)
	if err != nil {
		return Report{}, cluster.ExplainError("read the cluster", err)
	}
	report := Report{Drivers: []Driver{}, Problems: result.Problems, Preview: true}
	for _, owner := range slices.Sorted(maps.Keys(result.Plans)) {
		name := "NVIDIADriver/" + owner
		if owner == "ClusterPolicy/"+v1alpha1.ClusterPolicyName {
			name = owner
		}
		report.Drivers = append(report.Drivers, Driver{Name: name, Plan: new(result.Plans[owner])})
	}
	return report, nil
}

// readEdit reads the policies in the files. Any other object is an error.
func readEdit(files []string, in io.Reader) (policy.Edit, error) {
	var edit policy.Edit
	for _, file := range files {
		var text []byte
		var err error
		if file == "-" {
			text, err = io.ReadAll(in)
		} else {
			text, err = os.ReadFile(file)
		}
		if err != nil {
			return edit, fmt.Errorf("read policies: %w", err)
		}
		for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = addDocument(&edit, document)
			}
			if err != nil {
				return edit, fmt.Errorf("read policies from %s: %w", file, err)
			}
		}
	}
	if edit.Policy == nil && len(edit.Drivers) == 0 {
		return edit, errors.New("read policies: no ClusterPolicy or NVIDIADriver of tessera.dev in the files")
	}
	return edit, nil
}

// addDocument adds one YAML document to the edit.
func addDocument(edit *policy.Edit, document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		return nil // comments
	}
	if kind.APIVersion != v1alpha1.APIVersion {
		return fmt.Errorf("%s %s: must be a ClusterPolicy or NVIDIADriver of %s", kind.APIVersion, kind.Kind, v1alpha1.APIVersion)
	}
	switch kind.Kind {
	case "ClusterPolicy":
		edit.Policy = &v1alpha1.ClusterPolicy{}
		return yaml.UnmarshalStrict(document, edit.Policy)
	case "NVIDIADriver":
		var driver v1alpha1.NVIDIADriver
		err := yaml.UnmarshalStrict(document, &driver)
		edit.Drivers = append(edit.Drivers, driver)
		return err
	}
	return fmt.Errorf("%s %s: must be a ClusterPolicy or NVIDIADriver", kind.APIVersion, kind.Kind)
}

// mergeLive adds the annotations and the status of the cluster's objects to the edit and validates it with a dry run of the API server.
func mergeLive(ctx context.Context, c client.Client, edit *policy.Edit) error {
	if policy := edit.Policy; policy != nil {
		live := &v1alpha1.ClusterPolicy{}
		err := c.Get(ctx, client.ObjectKeyFromObject(policy), live)
		if err == nil {
			live.Spec, edit.Policy = policy.Spec, live
		}
		if err := dryRun(ctx, c, edit.Policy, err); err != nil {
			return err
		}
	}
	for i := range edit.Drivers {
		live := &v1alpha1.NVIDIADriver{}
		err := c.Get(ctx, client.ObjectKeyFromObject(&edit.Drivers[i]), live)
		if err == nil {
			live.Spec = edit.Drivers[i].Spec
			edit.Drivers[i] = *live
		}
		if err := dryRun(ctx, c, &edit.Drivers[i], err); err != nil {
			return err
		}
	}
	return nil
}

// dryRun validates the object with a dry run. found is the error of reading the live object. Without permission to write, the object is not
// validated.
func dryRun(ctx context.Context, c client.Client, object client.Object, found error) error {
	copied, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %s: not an object", object.GetName())
	}
	var err error
	switch {
	case found == nil:
		err = c.Update(ctx, copied, client.DryRunAll)
	case apierrors.IsNotFound(found):
		err = c.Create(ctx, copied, client.DryRunAll)
	default:
		return cluster.ExplainError("read "+object.GetName(), found)
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// readImages returns the images of the installed release.
func readImages(ctx context.Context, c client.Client, namespace string) (render.Images, error) {
	config, images := &corev1.ConfigMap{}, render.Images{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: imagesName}, config)
	if apierrors.IsNotFound(err) {
		return images, fmt.Errorf("read the images of the release: %w\nIf the installer runs in another namespace, name it with --system-namespace", err)
	}
	if err != nil {
		return images, cluster.ExplainError("read the images of the release", err)
	}
	if err := yaml.Unmarshal([]byte(config.Data[imagesKey]), &images); err != nil {
		return images, fmt.Errorf("read the images of the release: %w", err)
	}
	return images, nil
}
