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

// Runner runs a command in a container of a pod and returns what it prints.
type Runner interface {
	Run(ctx context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error)
}

// collector fills an archive from a cluster.
type collector struct {
	cluster *cluster.Cluster
	runner  Runner
	archive *archive
	// logLines is how many of a container's last lines are taken.
	logLines int64
	// progress is told what was done.
	progress io.Writer
	// system are the pods of Tessera, users the pods of others that use claims on GPUs.
	system []corev1.Pod
	users  []corev1.Pod
}

// part is one thing to collect.
type part struct {
	what string
	// collect returns how many there were.
	collect func(context.Context) (int, error)
}

// collect fills the archive. What cannot be had is noted; only an archive that cannot be written, or a
// user who interrupts, ends it early.
func (c *collector) collect(ctx context.Context) error {
	for _, p := range slices.Concat(c.views(), c.claimParts(), c.clusterParts(), c.systemParts()) {
		n, err := p.collect(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		said := fmt.Sprint(n)
		if err != nil {
			c.archive.fail(p.what, err)
			said += ", not all: see errors.txt"
		}
		if _, err := fmt.Fprintf(c.progress, "%-28s %s\n", p.what, said); err != nil {
			return err
		}
	}
	return nil
}

// views are what the other verbs show.
func (c *collector) views() []part {
	return []part{
		{"versions", func(ctx context.Context) (int, error) {
			v, err := version.Load(ctx, c.cluster)
			return c.json("versions.json", v, err)
		}},
		{"picture of the GPUs", func(ctx context.Context) (int, error) {
			found, err := gpus.Load(ctx, c.cluster)
			if err != nil {
				return 0, err
			}
			if _, err := c.json("gpus.json", found, nil); err != nil {
				return 0, err
			}
			return c.text("gpus.txt", func(s *output.Screen) { gpus.Draw(s, found, gpus.Full, time.Now()) })
		}},
		{"the doctor's report", func(ctx context.Context) (int, error) {
			found, err := doctor.Load(ctx, c.cluster, time.Now())
			if err != nil {
				return 0, err
			}
			if _, err := c.json("doctor.json", found, nil); err != nil {
				return 0, err
			}
			return c.text("doctor.txt", func(s *output.Screen) { doctor.Draw(s, found) })
		}},
		{"list of the claims", func(ctx context.Context) (int, error) {
			found, err := claims.Load(ctx, c.cluster, "")
			if err != nil {
				return 0, err
			}
			return c.text("claims.txt", func(s *output.Screen) { claims.Draw(s, found, output.Wide) })
		}},
	}
}

// claimParts are the objects of Dynamic Resource Allocation.
func (c *collector) claimParts() []part {
	api := c.cluster.Client.ResourceV1()
	everything := metav1.ListOptions{}
	return []part{
		{"resourceslices", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListSlices(ctx)
			return c.yaml("resourceslices.yaml", several(found), err)
		}},
		{"resourceclaims", func(ctx context.Context) (int, error) {
			all, err := objects(api.ResourceClaims("").List(ctx, everything))
			return c.yaml("resourceclaims.yaml", all, err)
		}},
		{"resourceclaimtemplates", func(ctx context.Context) (int, error) {
			all, err := objects(api.ResourceClaimTemplates("").List(ctx, everything))
			return c.yaml("resourceclaimtemplates.yaml", all, err)
		}},
		{"deviceclasses", func(ctx context.Context) (int, error) {
			all, err := objects(api.DeviceClasses().List(ctx, everything))
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

// clusterParts are what surrounds them.
func (c *collector) clusterParts() []part {
	everything := metav1.ListOptions{}
	policies := c.cluster.Client.AdmissionregistrationV1()
	ours := func(m metav1.Object) bool { return strings.Contains(m.GetName(), "tessera") }
	return []part{
		{"nodes", func(ctx context.Context) (int, error) {
			all, err := objects(c.cluster.Client.CoreV1().Nodes().List(ctx, everything))
			return c.yaml("nodes.yaml", all, err)
		}},
		{"devicetaintrules", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListRules(ctx)
			return c.yaml("devicetaintrules.yaml", several(found), err)
		}},
		{"gpunodes", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListGPUNodes(ctx)
			return c.yaml("gpunodes.yaml", several(found), err)
		}},
		{"clusterpolicies", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListPolicies(ctx)
			return c.yaml("clusterpolicies.yaml", several(found), err)
		}},
		{"events", func(ctx context.Context) (int, error) {
			found, err := c.cluster.Client.CoreV1().Events("").List(ctx, everything)
			if err != nil {
				return 0, err
			}
			var all []runtime.Object
			for i := range found.Items {
				if c.concerns(found.Items[i]) {
					all = append(all, &found.Items[i])
				}
			}
			return c.yaml("events.yaml", all, nil)
		}},
		{"admission policies", func(ctx context.Context) (int, error) {
			all, err := objects(policies.ValidatingAdmissionPolicies().List(ctx, everything))
			return c.yaml("validatingadmissionpolicies.yaml", keep(all, ours), err)
		}},
		{"admission policy bindings", func(ctx context.Context) (int, error) {
			all, err := objects(policies.ValidatingAdmissionPolicyBindings().List(ctx, everything))
			return c.yaml("validatingadmissionpolicybindings.yaml", keep(all, ours), err)
		}},
	}
}

// concerns reports whether the event is about Tessera, a claim, a node, or a pod with claims.
func (c *collector) concerns(e corev1.Event) bool {
	about := e.InvolvedObject
	switch about.Kind {
	case "ResourceClaim", "ResourceSlice", "ResourceClaimTemplate", "DeviceClass", "Node":
		return true
	case "Pod":
		return about.Namespace == cluster.SystemNamespace || slices.ContainsFunc(c.users, func(p corev1.Pod) bool {
			return p.Namespace == about.Namespace && p.Name == about.Name
		})
	}
	return about.Namespace == cluster.SystemNamespace
}

// yaml adds the objects. With an error of asking for them there is no file.
func (c *collector) yaml(name string, all []runtime.Object, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	text, err := render(all)
	if err != nil {
		return 0, err
	}
	return len(all), c.archive.add(name, text)
}

// json adds the value; there may be some of it with an error, too.
func (c *collector) json(name string, value any, err error) (int, error) {
	text, broken := json.MarshalIndent(value, "", "  ")
	if broken != nil {
		return 0, broken
	}
	if broken := c.archive.add(name, append(text, '\n')); broken != nil {
		return 0, broken
	}
	return 1, err
}

// text adds what a verb draws.
func (c *collector) text(name string, draw func(*output.Screen)) (int, error) {
	var text bytes.Buffer
	screen, err := output.NewScreen(&text, "never")
	if err != nil {
		return 0, err
	}
	draw(screen)
	return 1, c.archive.add(name, text.Bytes())
}
