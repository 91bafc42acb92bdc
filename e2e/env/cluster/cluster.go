package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// Config configures a cluster.
type Config struct {
	// Folder is the lab's folder. The lab's default if empty.
	Folder string
	// Nodes are the lab's nodes. Nodes() if nil.
	Nodes []lab.NodeSpec
	// Images are archives that every node imports. If nil, they are built by Images.
	Images []string
	// Components are folders in deployments/ whose kustomize components are installed in addition.
	Components []string
	// Progress receives one line per step.
	Progress io.Writer
}

// Cluster is a lab with Tessera installed.
type Cluster struct {
	*lab.Lab
	// Client and Dynamic have the permissions of the cluster's administrator and no rate limit.
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Kinds is a client for the built-in kinds and those of Tessera.
	Kinds client.WithWatch

	objects *objects
}

// Up starts a lab, installs Tessera in it and returns when every node's agent is ready. After an error the lab keeps
// running for inspection; lab.Down removes it.
func Up(ctx context.Context, c Config) (*Cluster, error) {
	if c.Nodes == nil {
		c.Nodes = Nodes()
	}
	l, err := start(ctx, &c, Images, false)
	if err != nil {
		return nil, err
	}
	return install(ctx, l, c)
}

// start completes the configuration, builds the images if none are given, and starts the lab, with kube-scheduler in the place of tessera-scheduler if
// stockScheduler is set.
func start(ctx context.Context, c *Config, build func(context.Context, io.Writer) ([]string, error), stockScheduler bool) (_ *lab.Lab, err error) {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Images == nil {
		if c.Images, err = build(ctx, c.Progress); err != nil {
			return nil, err
		}
	}
	return lab.Start(ctx, lab.Config{
		Folder: c.Folder, Nodes: c.Nodes, Hardware: Hardware{}, Images: c.Images, StockScheduler: stockScheduler, Progress: c.Progress,
	})
}

// Open returns the running cluster in the folder.
func Open(folder string) (*Cluster, error) {
	l, err := lab.Open(folder, Hardware{})
	if err != nil {
		return nil, err
	}
	return connect(l)
}

func connect(l *lab.Lab) (*Cluster, error) {
	standard, err := kubernetes.NewForConfig(l.Config())
	if err != nil {
		return nil, fmt.Errorf("connect to the lab: %w", err)
	}
	dyn, err := dynamic.NewForConfig(l.Config())
	if err != nil {
		return nil, fmt.Errorf("connect to the lab: %w", err)
	}
	kinds, err := newKinds(l.Config())
	if err != nil {
		return nil, err
	}
	return &Cluster{Lab: l, Client: standard, Dynamic: dyn, Kinds: kinds, objects: newObjects(standard.Discovery(), dyn)}, nil
}

func install(ctx context.Context, l *lab.Lab, config Config) (*Cluster, error) {
	c, err := connect(l)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(config.Progress, "installing Tessera: deployments/ as shipped, with the roots of the fake GPUs") //nolint:errcheck // progress is for the eye
	manifests, err := manifests(ctx, l.Kubernetes(), config.Components)
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, manifests...); err != nil {
		return nil, fmt.Errorf("install Tessera: %w", err)
	}
	if err := c.AwaitAgents(ctx); err != nil {
		return nil, fmt.Errorf("wait for the agents: %w", err)
	}
	return c, nil
}

// manifests returns the objects of deployments/ for a lab with this minor version of Kubernetes, with the given components.
func manifests(ctx context.Context, kubernetes string, components []string) ([]*unstructured.Unstructured, error) {
	switch {
	case len(components) == 0:
		return Manifests(kubernetes)
	case lab.RunsOwnScheduler(kubernetes):
		return WithComponents(ctx, components...)
	default:
		return Kustomized(ctx, components...)
	}
}

// source returns the path of a file in the repository.
func source(path ...string) (string, error) {
	root, err := binaries.Source()
	if err != nil {
		return "", err
	}
	full := filepath.Join(append([]string{root}, path...)...)
	if _, err := os.Stat(full); err != nil {
		return "", errors.Join(fmt.Errorf("find %s in the repository", filepath.Join(path...)), err)
	}
	return full, nil
}
