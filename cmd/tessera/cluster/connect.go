package cluster

import (
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tessera-gpu/tessera/internal/capability"
)

// Cluster is a connection to a cluster.
type Cluster struct {
	Client kubernetes.Interface
	// Dynamic is a client for Tessera's own kinds.
	Dynamic dynamic.Interface
	// Config is the configuration of the clients; nil in tests with fake clients.
	Config *rest.Config
	// Namespace is the selected namespace.
	Namespace string
	// System is the namespace of Tessera's components if the caller selected one; see SystemNamespace.
	System string
	// Drivers are the names of the selected DRA drivers.
	Drivers []string
	// Server is what the API server serves; nil if it was not read.
	Server *capability.Server
	// caches are those of a cluster that Watched returned, otherwise nil.
	caches *caches
}

// ConnectSupported returns a connection to the selected cluster, and an error if its API server does not respond or is too old for Tessera. If what it
// serves cannot be read for another reason, Server is nil: the requests of the verb fail with the same cause.
func (f *Flags) ConnectSupported() (*Cluster, error) {
	c, err := f.Connect()
	if err != nil {
		return nil, err
	}
	server, err := capability.Detect(c.Client.Discovery())
	switch {
	case err == nil:
		c.Server = &server
	case errors.Is(err, capability.ErrTooOld):
		return nil, err
	case isUnreachable(err):
		return nil, ExplainError("connect to the API server", err)
	}
	return c, nil
}

// Connect returns a connection to the selected cluster. It sends no request.
func (f *Flags) Connect() (*Cluster, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	if f.isDefault(config) {
		return nil, fmt.Errorf("load the kubeconfig: %w", errNoCluster)
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig: %w", err)
	}
	return &Cluster{
		Client: client, Dynamic: dynamicClient, Config: config, Namespace: namespace, System: f.SystemNamespace, Drivers: f.Drivers,
	}, nil
}
