package cluster

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// Flags select a cluster, a namespace and the drivers. The flags of kubectl are those of genericclioptions.
type Flags struct {
	*genericclioptions.ConfigFlags
	// Drivers are the names of the DRA drivers whose devices are read.
	Drivers []string
	// SystemNamespace is the namespace of Tessera's components; empty: found by label.
	SystemNamespace string
}

// NewFlags returns the flags with their defaults.
func NewFlags() *Flags {
	standard := genericclioptions.NewConfigFlags(true)
	// The command stores no discovery documents.
	standard.CacheDir = nil
	limited := limitFirstResponse()
	standard.WrapConfigFn = func(config *rest.Config) *rest.Config {
		// The command is interactive: disable the client-side rate limit.
		config.QPS = -1
		config.UserAgent = "tessera"
		config.Wrap(limited)
		return config
	}
	return &Flags{ConfigFlags: standard, Drivers: []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}}
}

// errNoCluster is the error without any configuration.
var errNoCluster = errors.New("no cluster is configured: use --kubeconfig, set KUBECONFIG, or create " + clientcmd.RecommendedHomeFile)

// isDefault reports whether the configuration is the one that clientcmd returns without a kubeconfig: the insecure port of an API server on this host.
func (f *Flags) isDefault(config *rest.Config) bool {
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	return err == nil && len(raw.Clusters) == 0 && *f.APIServer == "" && config.Host == "http://localhost:8080"
}

// Add defines the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	f.AddFlags(flags)
	flags.StringSliceVar(&f.Drivers, "driver", f.Drivers, "names of the DRA drivers whose devices are read")
	flags.StringVar(&f.SystemNamespace, "system-namespace", "", "namespace of Tessera's components (default found by the label "+PartOfSelector+")")
}
