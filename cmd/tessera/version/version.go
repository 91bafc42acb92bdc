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
)

// Selector finds the pods of Tessera in its namespace.
const Selector = "app.kubernetes.io/part-of=tessera"

// Versions is the answer.
type Versions struct {
	// Client is this program.
	Client string `json:"client"`
	// Server is the Kubernetes version of the API server.
	Server string `json:"server,omitempty"`
	// Components are the running parts of Tessera by name and image.
	Components []Component `json:"components,omitempty"`
}

// Component is one part of Tessera as it runs with one image.
type Component struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// ImageID is what the image's name stood for on the node of the first pod.
	ImageID string `json:"imageID,omitempty"`
	Pods    int    `json:"pods"`
	Ready   int    `json:"ready"`
}

// Client returns what the Go toolchain recorded when it built the program.
func Client() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + " " + info.GoVersion
}

// Command returns the verb.
func Command(flags *cluster.Flags) *cobra.Command {
	var answer output.Flags
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, of the API server and of Tessera's pods, by image",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := answer.Validate(); err != nil {
				return err
			}
			v := Versions{Client: Client()}
			var failure error
			if !clientOnly {
				v, failure = ask(cmd.Context(), flags)
			}
			if err := write(cmd.OutOrStdout(), v, answer); err != nil {
				return err
			}
			return failure
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "print this program's version only, without asking the cluster")
	answer.Add(cmd, output.Text, output.JSON)
	return cmd
}

func ask(ctx context.Context, flags *cluster.Flags) (Versions, error) {
	c, err := flags.Connect()
	if err != nil {
		return Versions{Client: Client()}, err
	}
	return Load(ctx, c)
}

// Load asks the cluster. With an error comes what was found before it.
func Load(ctx context.Context, c *cluster.Cluster) (Versions, error) {
	v := Versions{Client: Client()}
	server, err := c.Client.Discovery().ServerVersion()
	if err != nil {
		return v, cluster.Explain("ask the API server for its version", err)
	}
	v.Server = server.GitVersion
	pods, err := c.Client.CoreV1().Pods(cluster.SystemNamespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return v, cluster.Explain("list the pods in "+cluster.SystemNamespace, err)
	}
	v.Components = components(pods.Items)
	return v, nil
}

// components counts containers by name and image.
func components(pods []corev1.Pod) []Component {
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

func write(out io.Writer, v Versions, answer output.Flags) error {
	if answer.Format == output.JSON {
		return output.WriteJSON(out, v)
	}
	screen, err := output.NewScreen(out, answer.Color)
	if err != nil {
		return err
	}
	screen.Line(output.Part{Text: "tessera     " + v.Client})
	if v.Server != "" {
		screen.Line(output.Part{Text: "kubernetes  " + v.Server})
	}
	if v.Server != "" && len(v.Components) == 0 {
		screen.Line(output.Part{Text: "No pods of Tessera run in " + cluster.SystemNamespace + "."})
	}
	if len(v.Components) > 0 {
		screen.Line()
		var rows [][]string
		for _, c := range v.Components {
			rows = append(rows, []string{c.Name, c.Image, fmt.Sprintf("%d/%d", c.Ready, c.Pods)})
		}
		screen.Table([]string{"COMPONENT", "IMAGE", "READY"}, rows)
	}
	return screen.Err()
}
