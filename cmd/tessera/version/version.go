// Package version is the verb version: which Tessera this is, and which ones the nodes run.
package version

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
	"github.com/tessera-gpu/tessera/cmd/tessera/output"
	"github.com/tessera-gpu/tessera/internal/version"
)

// Versions is the output of the verb.
type Versions struct {
	// Client is the version of this program.
	Client string `json:"client"`
	// Server is the Kubernetes version of the API server.
	Server string `json:"server,omitempty"`
	// Namespace is that of Tessera's components.
	Namespace string `json:"namespace,omitempty"`
	// Components are Tessera's pods, grouped by name and image.
	Components []Component `json:"components,omitempty"`
}

// Component is the pods of one component with one image.
type Component struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// ImageID is that of the first pod that reports one.
	ImageID string `json:"imageID,omitempty"`
	Pods    int    `json:"pods"`
	Ready   int    `json:"ready"`
}

// ClientVersion returns the version of this program and of the Go toolchain.
func ClientVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return version.Release(info) + " " + info.GoVersion
}

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program, the API server and Tessera's pods",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			v := Versions{Client: ClientVersion()}
			var failure error
			if !clientOnly {
				v, failure = connectAndLoad(cmd.Context(), flags)
			}
			if err := writeVersions(cmd.OutOrStdout(), v, answer); err != nil {
				return err
			}
			return failure
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show only the version of this program, without a connection to the cluster")
	answer.Add(cmd)
	return cmd
}

func connectAndLoad(ctx context.Context, flags *cluster.Flags) (Versions, error) {
	c, err := flags.Connect()
	if err != nil {
		return Versions{Client: ClientVersion()}, err
	}
	return Load(ctx, c)
}

// Load returns the versions in the cluster. With an error it returns those found so far.
func Load(ctx context.Context, c *cluster.Cluster) (Versions, error) {
	v := Versions{Client: ClientVersion()}
	server, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return v, cluster.ExplainError("read the API server's version", err)
	}
	v.Server = server.GitVersion
	if v.Namespace, err = c.SystemNamespace(ctx); err != nil {
		return v, err
	}
	pods, err := c.Client.CoreV1().Pods(v.Namespace).List(ctx, metav1.ListOptions{LabelSelector: cluster.PartOfSelector})
	if err != nil {
		return v, cluster.ExplainError("list the pods in "+v.Namespace, err)
	}
	v.Components = groupByImage(pods.Items)
	return v, nil
}

// groupByImage counts containers by component name and image.
func groupByImage(pods []corev1.Pod) []Component {
	var all []Component
	for _, p := range pods {
		name := cmp.Or(p.Labels["app.kubernetes.io/name"], p.Name)
		for _, container := range p.Spec.Containers {
			i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name && c.Image == container.Image })
			if i < 0 {
				i = len(all)
				all = append(all, Component{Name: name, Image: container.Image})
			}
			all[i].Pods++
			for _, status := range p.Status.ContainerStatuses {
				if status.Name != container.Name {
					continue
				}
				all[i].ImageID = cmp.Or(all[i].ImageID, status.ImageID)
				if status.Ready {
					all[i].Ready++
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Component) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Image, b.Image))
	})
	return all
}

func writeVersions(out io.Writer, v Versions, answer output.Flags) error {
	return answer.Print(out, output.Result{Value: v, Draw: func(s *output.Screen) { draw(s, v) }})
}

func draw(screen *output.Screen, v Versions) {
	screen.Line(output.Part{Text: "tessera     " + v.Client})
	if v.Server != "" {
		screen.Line(output.Part{Text: "kubernetes  " + v.Server})
	}
	if v.Server != "" && len(v.Components) == 0 {
		screen.Line(output.Part{Text: "No Tessera pods in " + v.Namespace + "."})
	}
	if len(v.Components) > 0 {
		screen.Line()
		var rows [][]string
		for _, c := range v.Components {
			rows = append(rows, []string{c.Name, c.Image, fmt.Sprintf("%d/%d", c.Ready, c.Pods)})
		}
		screen.Table(output.Columns("COMPONENT", "IMAGE", "READY"), rows)
	}
}
