package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// completionTimeout limits the requests of a completion. The shell waits for it.
const completionTimeout = 3 * time.Second

// Completer returns what an argument that begins with the text can be.
type Completer func(ctx context.Context, c *Cluster, begin string) ([]string, error)

// Complete returns the completion of a verb's arguments with names from the cluster. Without a connection there is none: the shell shows no errors.
func (f *Flags) Complete(names Completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := f.Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found, err := names(ctx, c, begin)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		slices.Sort(found)
		return slices.DeleteFunc(slices.Compact(found), func(name string) bool {
			return !strings.HasPrefix(name, begin) || slices.Contains(args, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlags defines the completion of the flags that Add has defined on the command.
func (f *Flags) CompleteFlags(cmd *cobra.Command) {
	for flag, complete := range map[string]cobra.CompletionFunc{
		"namespace": f.Complete(NamespaceNames), "system-namespace": f.Complete(NamespaceNames),
		"context": f.completeConfig(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Contexts)) }),
		"cluster": f.completeConfig(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.Clusters)) }),
		"user":    f.completeConfig(func(c clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(c.AuthInfos)) }),
	} {
		// Registering fails only for a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, complete)
	}
}

// completeConfig returns the completion of a flag with names from the kubeconfig.
func (f *Flags) completeConfig(names func(clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := f.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(raw), cobra.ShellCompDirectiveNoFileComp
	}
}

// NamespaceNames is a Completer with all namespaces.
func NamespaceNames(ctx context.Context, c *Cluster, _ string) ([]string, error) {
	list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names, nil
}

// NodeNames is a Completer with the nodes that publish GPUs.
func NodeNames(ctx context.Context, c *Cluster, _ string) ([]string, error) {
	published, err := c.ListResourceSlices(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range published {
		if s.Spec.NodeName != nil {
			names = append(names, *s.Spec.NodeName)
		}
	}
	return names, nil
}
