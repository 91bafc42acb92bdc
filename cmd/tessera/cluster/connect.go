package cluster

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/internal/capability"
)

// SystemNamespace is the namespace of Tessera's components.
const SystemNamespace = "tessera-system"

// Flags select a cluster, a namespace and the drivers.
type Flags struct {
	Kubeconfig, Context, Namespace string
	// Drivers are the names of the DRA drivers whose devices are read.
	Drivers []string
}

// Add defines the flags.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "path of the kubeconfig file (default $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&f.Context, "context", "", "kubeconfig context (default the current one)")
	flags.StringVarP(&f.Namespace, "namespace", "n", "", "namespace (default that of the context)")
	flags.StringSliceVar(&f.Drivers, "driver", []string{v1alpha1.DriverName, v1alpha1.NVIDIADriverName}, "names of the DRA drivers whose devices are read")
}

// Cluster is a connection to a cluster.
type Cluster struct {
	Client kubernetes.Interface
	// Dynamic is a client for Tessera's own kinds.
	Dynamic dynamic.Interface
	// Config is the configuration of the clients; nil in tests with fake clients.
	Config *rest.Config
	// Namespace is the selected namespace.
	Namespace string
	// Drivers are the names of the selected DRA drivers.
	Drivers []string
	// Server is what the API server serves; nil if it was not read.
	Server *capability.Server
}

// ConnectSupported returns a connection to the selected cluster, and an error if its API server is too old for Tessera. If what it serves cannot be read,
// Server is nil: the requests of the verb fail with the same cause.
func (f *Flags) ConnectSupported() (*Cluster, error) {
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	switch server, err := capability.Detect(c.Client.Discovery()); {
	case errors.Is(err, capability.ErrTooOld):
		return nil, err
	case err == nil:
		c.Server = &server
	}
	return c, nil
}

// Connect returns a connection to the selected cluster. It sends no request.
func (f *Flags) Connect() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	overrides.Context.Namespace = f.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("load the kubeconfig: no cluster is configured: use --kubeconfig, set KUBECONFIG, or create %s", clientcmd.RecommendedHomeFile)
	}
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	// The command is interactive: disable the client-side rate limit.
	config.QPS = -1
	config.UserAgent = "tessera"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	return &Cluster{Client: client, Dynamic: dynamicClient, Config: config, Namespace: namespace, Drivers: f.Drivers}, nil
}
