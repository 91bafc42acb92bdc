package cluster

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// SystemNamespace is where Tessera's agents run.
const SystemNamespace = "tessera-system"

// Flags say which cluster is meant.
type Flags struct {
	Kubeconfig, Context, Namespace string
	// Drivers are the names of the DRA drivers whose devices are looked at.
	Drivers []string
}

// Add defines the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "path of a kubeconfig; by default $KUBECONFIG, then ~/.kube/config")
	flags.StringVar(&f.Context, "context", "", "context of the kubeconfig; by default its current one")
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace; by default the context's")
	flags.StringSliceVar(&f.Drivers, "driver", []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}, "names of the DRA drivers to look at")
}

// Cluster is a cluster that can be asked.
type Cluster struct {
	Client kubernetes.Interface
	// Dynamic is a client for Tessera's own kinds.
	Dynamic dynamic.Interface
	// Config is how the client reaches it; nil where there is no network in between.
	Config *rest.Config
	// Namespace is the one that the user means.
	Namespace string
	// Drivers are the names of the DRA drivers that the user means.
	Drivers []string
}

// Connect returns the cluster that the flags mean, without asking it anything.
func (f *Flags) Connect() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	overrides.Context.Namespace = f.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("find the cluster: no kubeconfig names one: use --kubeconfig, set KUBECONFIG, or write %s", clientcmd.RecommendedHomeFile)
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	// A person waits: no limit of their own requests.
	config.QPS = -1
	config.UserAgent = "tessera"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	own, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return &Cluster{Client: client, Dynamic: own, Config: config, Namespace: namespace, Drivers: f.Drivers}, nil
}
