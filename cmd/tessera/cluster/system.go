package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PartOfSelector selects Tessera's namespace, workloads and pods.
const PartOfSelector = "app.kubernetes.io/part-of=tessera"

// DefaultSystemNamespace is the namespace of Tessera's components in the manifests and in the documentation.
const DefaultSystemNamespace = "tessera-system"

// SystemNamespace returns the namespace of Tessera's components: the selected one, otherwise the one with the label, or with workloads with the label.
// Without a labeled object, or without permission to list them, it is tessera-system.
func (c *Cluster) SystemNamespace(ctx context.Context) (string, error) {
	if c.System != "" {
		return c.System, nil
	}
	labeled := metav1.ListOptions{LabelSelector: PartOfSelector}
	var found []string
	for _, list := range []func() error{
		func() error {
			list, err := c.Client.CoreV1().Namespaces().List(ctx, labeled)
			for i := range list.Items {
				found = append(found, list.Items[i].Name)
			}
			return err
		},
		func() error {
			list, err := c.Client.AppsV1().Deployments("").List(ctx, labeled)
			for i := range list.Items {
				found = append(found, list.Items[i].Namespace)
			}
			return err
		},
		func() error {
			list, err := c.Client.AppsV1().DaemonSets("").List(ctx, labeled)
			for i := range list.Items {
				found = append(found, list.Items[i].Namespace)
			}
			return err
		},
	} {
		if err := list(); err != nil && !apierrors.IsForbidden(err) {
			return "", ExplainError("find Tessera's namespace", err)
		}
		if len(found) > 0 {
			break
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); {
	case len(found) == 0, slices.Contains(found, DefaultSystemNamespace):
		c.System = DefaultSystemNamespace
	case len(found) == 1:
		c.System = found[0]
	default:
		return "", fmt.Errorf("find Tessera's namespace: %s have the label %s: select one with --system-namespace", strings.Join(found, ", "), PartOfSelector)
	}
	return c.System, nil
}
