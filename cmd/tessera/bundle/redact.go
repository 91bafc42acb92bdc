package bundle

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// redacted replaces removed values.
const redacted = "<redacted>"

// secretWord matches words in the names of flags, variables and headers whose values may be secrets.
const secretWord = `(?:pass|secret|token|key|cred|auth|licen[cs]e)`

// secretNames matches a name with secretWord and its value, secretFlag a flag of such a name; userInfo a user with a password in a URL; authorization
// the credentials of a header.
var (
	secretNames   = regexp.MustCompile(`(?i)([\w.-]*` + secretWord + `[\w.-]*["']?\s*[=:]\s*)(?:"[^"]*"|'[^']*'|\S+)`)
	secretFlag    = regexp.MustCompile(`(?i)^-[\w.-]*` + secretWord + `[\w.-]*$`)
	userInfo      = regexp.MustCompile(`(://)[^/@\s]+@`)
	authorization = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S+`)
)

// removeSensitive removes managedFields, kubectl's last-applied annotation, the values of the other annotations that are not Tessera's, and literal
// environment values. In objects of users' namespaces it removes commands and their arguments, and in others the arguments that may be secrets. It
// works on fields by their names, at any depth, so that templates and Tessera's own objects are covered. It modifies its argument.
func removeSensitive(object map[string]any, system string) {
	namespace, _, _ := unstructured.NestedString(object, "metadata", "namespace")
	unstructured.RemoveNestedField(object, "metadata", "managedFields")
	hide := redactAll
	if namespace == "" || namespace == system {
		hide = redactSecrets
	}
	redactFields(object, hide)
}

// redactFields redacts the fields of the value at any depth; hide redacts the arguments of a command.
func redactFields(value any, hide func(arguments []any)) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			redactFields(element, hide)
		}
	case map[string]any:
		for name, field := range value {
			switch list, isList := field.([]any); {
			case name == "annotations":
				redactAnnotations(field)
			case name == "env" && isList:
				redactEnvironment(list)
			case (name == "command" || name == "args") && isList:
				hide(list)
			}
			redactFields(field, hide)
		}
	}
}

// redactAnnotations removes kubectl's annotation and the values of those that are not Tessera's.
func redactAnnotations(field any) {
	annotations, _ := field.(map[string]any)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	for key := range annotations {
		if domain, _, _ := strings.Cut(key, "/"); domain != ourDomain && !strings.HasSuffix(domain, "."+ourDomain) {
			annotations[key] = redacted
		}
	}
}

// ourDomain is the domain of Tessera's annotations, without subdomains.
const ourDomain = "tessera.dev"

// redactEnvironment replaces the literal values of environment variables.
func redactEnvironment(list []any) {
	for _, element := range list {
		if variable, ok := element.(map[string]any); ok && variable["value"] != nil && variable["value"] != "" {
			variable["value"] = redacted
		}
	}
}

// redactAll replaces all arguments.
func redactAll(arguments []any) {
	for i := range arguments {
		arguments[i] = redacted
	}
}

// redactSecrets replaces the values in arguments that may be secrets: by the name before the value, in the same argument or in the one before, as part
// of a URL, or as credentials of a header.
func redactSecrets(arguments []any) {
	follows := false
	for i, argument := range arguments {
		text, _ := argument.(string)
		if follows && !strings.HasPrefix(text, "-") {
			arguments[i], follows = redacted, false
			continue
		}
		follows = secretFlag.MatchString(text)
		text = authorization.ReplaceAllString(text, "${1} "+redacted)
		text = secretNames.ReplaceAllString(text, "${1}"+redacted)
		arguments[i] = userInfo.ReplaceAllString(text, "${1}"+redacted+"@")
	}
}

// objectList is a List in the form of kubectl.
type objectList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []map[string]any `json:"items"`
}

// marshalObjects returns the objects as one YAML List, each with its type and without sensitive fields.
func marshalObjects(objects []runtime.Object, system string) ([]byte, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		return nil, err
	}
	all := objectList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []map[string]any{}}
	for _, object := range objects {
		copied := object.DeepCopyObject()
		kinds, _, err := known.ObjectKinds(copied)
		if err != nil {
			return nil, fmt.Errorf("encode a %T: %w", copied, err)
		}
		copied.GetObjectKind().SetGroupVersionKind(kinds[0])
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(copied)
		if err != nil {
			return nil, fmt.Errorf("encode a %T: %w", copied, err)
		}
		removeSensitive(fields, system)
		all.Items = append(all.Items, fields)
	}
	return yaml.Marshal(all)
}

// listItems returns the items of a list.
func listItems(list runtime.Object, err error) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// toObjects returns the values as runtime objects.
func toObjects[T any, P interface {
	*T
	runtime.Object
}](found []T) []runtime.Object {
	var all []runtime.Object
	for i := range found {
		all = append(all, P(&found[i]))
	}
	return all
}

// filterObjects returns the selected objects.
func filterObjects(all []runtime.Object, selected func(metav1.Object) bool) []runtime.Object {
	kept := []runtime.Object{}
	for _, object := range all {
		if m, err := meta.Accessor(object); err == nil && selected(m) {
			kept = append(kept, object)
		}
	}
	return kept
}
