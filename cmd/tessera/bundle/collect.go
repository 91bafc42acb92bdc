package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/cmd/tessera/claims"
	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/doctor"
	"github.com/tessera-gpu/tessera/cmd/tessera/gpus"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/cmd/tessera/version"
)

// collector writes a cluster's objects, logs and metrics into an archive.
type collector struct {
	cluster *cluster.Cluster
	runner  cluster.Runner
	archive *archive
	// logLines is the number of lines that are collected of each container's log, from its end.
	logLines int64
	// progress receives a line per part.
	progress io.Writer
	// system are Tessera's pods, users all other pods with claims.
	system []corev1.Pod
	// namespace is that of Tessera's components.
	namespace string
	users     []corev1.Pod
}

// part is one part of the bundle.
type part struct {
	name string
	// collect returns the number of collected items, also with an error.
	collect func(context.Context) (int, error)
}

// collect collects all parts. The error of a part is recorded in the archive; only a write error or the end of ctx ends the
// collection early.
func (c *collector) collect(ctx context.Context) error {
	for _, p := range slices.Concat(c.views(), c.claimParts(), c.clusterParts(), c.systemParts()) {
		n, err := p.collect(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		result := fmt.Sprint(n)
		if err != nil {
			c.archive.fail(p.name, err)
			result += ", incomplete: see errors.txt"
		}
		if _, err := fmt.Fprintf(c.progress, "%-28s %s\n", p.name, result); err != nil {
			return err
		}
	}
	return nil
}

// views are the outputs of other verbs.
func (c *collector) views() []part {
	return []part{
		{"versions", func(ctx context.Context) (int, error) {
			v, err := version.Load(ctx, c.cluster)
			return c.json("versions.json", v, err)
		}},
		{"GPUs", func(ctx context.Context) (int, error) {
			found, err := gpus.Load(ctx, c.cluster)
			if err != nil {
				return 0, err
			}
			if _, err := c.json("gpus.json", found, nil); err != nil {
				return 0, err
			}
			return c.text("gpus.txt", func(s *output.Screen) { gpus.Draw(s, found, time.Now()) })
		}},
		{"doctor report", func(ctx context.Context) (int, error) {
			found, err := doctor.Load(ctx, c.cluster, time.Now())
			if err != nil {
				return 0, err
			}
			if _, err := c.json("doctor.json", found, nil); err != nil {
				return 0, err
			}
			return c.text("doctor.txt", func(s *output.Screen) { doctor.Draw(s, found) })
		}},
		{"claims", func(ctx context.Context) (int, error) {
			found, err := claims.Load(ctx, c.cluster, claims.Selection{})
			if err != nil {
				return 0, err
			}
			return c.text("claims.txt", func(s *output.Screen) { claims.Draw(s, found) })
		}},
	}
}

// claimParts are the objects of Dynamic Resource Allocation.
func (c *collector) claimParts() []part {
	api := c.cluster.Client.ResourceV1()
	everything := metav1.ListOptions{}
	return []part{
		{"resourceslices", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListResourceSlices(ctx)
			return c.yaml("resourceslices.yaml", toObjects(found), err)
		}},
		{"resourceclaims", func(ctx context.Context) (int, error) {
			all, err := listItems(api.ResourceClaims("").List(ctx, everything))
			return c.yaml("resourceclaims.yaml", all, err)
		}},
		{"resourceclaimtemplates", func(ctx context.Context) (int, error) {
			all, err := listItems(api.ResourceClaimTemplates("").List(ctx, everything))
			return c.yaml("resourceclaimtemplates.yaml", all, err)
		}},
		{"deviceclasses", func(ctx context.Context) (int, error) {
			all, err := listItems(api.DeviceClasses().List(ctx, everything))
			return c.yaml("deviceclasses.yaml", all, err)
		}},
		{"pods with claims", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListPods(ctx, "")
			var all []runtime.Object
			for i := range found {
				if len(found[i].Spec.ResourceClaims) > 0 || len(cluster.ClaimNames(found[i])) > 0 {
					c.users = append(c.users, found[i])
					all = append(all, &found[i])
				}
			}
			return c.yaml("pods.yaml", all, err)
		}},
	}
}

// clusterParts are nodes, Tessera's custom objects, events and admission policies.
func (c *collector) clusterParts() []part {
	everything := metav1.ListOptions{}
	policies := c.cluster.Client.AdmissionregistrationV1()
	ours := func(m metav1.Object) bool { return strings.Contains(m.GetName(), "tessera") }
	return []part{
		{"nodes", func(ctx context.Context) (int, error) {
			all, err := listItems(c.cluster.Client.CoreV1().Nodes().List(ctx, everything))
			return c.yaml("nodes.yaml", all, err)
		}},
		{"devicetaintrules", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListRules(ctx)
			return c.yaml("devicetaintrules.yaml", toObjects(found), err)
		}},
		{"gpunodes", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListGPUNodes(ctx)
			return c.yaml("gpunodes.yaml", toObjects(found), err)
		}},
		{"clusterpolicies", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListPolicies(ctx)
			return c.yaml("clusterpolicies.yaml", toObjects(found), err)
		}},
		{"events", func(ctx context.Context) (int, error) {
			found, err := c.cluster.Client.CoreV1().Events("").List(ctx, everything)
			if err != nil {
				return 0, err
			}
			var all []runtime.Object
			for i := range found.Items {
				if c.isRelevant(found.Items[i]) {
					all = append(all, &found.Items[i])
				}
			}
			return c.yaml("events.yaml", all, nil)
		}},
		{"admission policies", func(ctx context.Context) (int, error) {
			all, err := listItems(policies.ValidatingAdmissionPolicies().List(ctx, everything))
			return c.yaml("validatingadmissionpolicies.yaml", filterObjects(all, ours), err)
		}},
		{"admission policy bindings", func(ctx context.Context) (int, error) {
			all, err := listItems(policies.ValidatingAdmissionPolicyBindings().List(ctx, everything))
			return c.yaml("validatingadmissionpolicybindings.yaml", filterObjects(all, ours), err)
		}},
	}
}

// isRelevant reports whether the event is about Tessera, a claim, a node or a pod with claims.
func (c *collector) isRelevant(e corev1.Event) bool {
	about := e.InvolvedObject
	switch about.Kind {
	case "ResourceClaim", "ResourceSlice", "ResourceClaimTemplate", "DeviceClass", "Node":
		return true
	case "Pod":
		return about.Namespace == c.namespace || slices.ContainsFunc(c.users, func(p corev1.Pod) bool {
			return p.Namespace == about.Namespace && p.Name == about.Name
		})
	}
	return about.Namespace == c.namespace
}

// yaml adds the objects to the archive; nothing when err, that of listing them, is not nil.
func (c *collector) yaml(name string, all []runtime.Object, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	text, err := marshalObjects(all, c.namespace)
	if err != nil {
		return 0, err
	}
	return len(all), c.archive.add(name, text)
}

// json adds the value to the archive and returns err, that of loading it: a partial value is written, too.
func (c *collector) json(name string, value any, err error) (int, error) {
	text, failed := json.MarshalIndent(value, "", "  ")
	if failed != nil {
		return 0, failed
	}
	if failed := c.archive.add(name, append(text, '\n')); failed != nil {
		return 0, failed
	}
	return 1, err
}

// text adds a verb's text output to the archive.
func (c *collector) text(name string, draw func(*output.Screen)) (int, error) {
	var text bytes.Buffer
	screen, err := output.NewScreen(&text, "never")
	if err != nil {
		return 0, err
	}
	screen.Wide = true
	draw(screen)
	return 1, c.archive.add(name, text.Bytes())
}
