package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
)

// targets returns the labels of the targets that the jobs of the configuration file scrape, as Prometheus' discovery
// finds them among the pods, of which there are so many, in the cluster of the kubeconfig.
func targets(ctx context.Context, file, kubeconfig string, pods int) ([]map[string]string, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, err
	}
	c, err := config.Load(string(text), slog.Default())
	if err != nil {
		return nil, err
	}
	jobs, err := c.GetScrapeConfigs()
	if err != nil {
		return nil, err
	}
	var found []map[string]string
	for _, job := range jobs {
		groups, err := discover(ctx, job, kubeconfig, pods)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", job.JobName, err)
		}
		for _, g := range groups {
			for _, t := range g.Targets {
				kept, err := scrape.PopulateLabels(labels.NewBuilder(labels.EmptyLabels()), job, t, g.Labels)
				if err != nil {
					return nil, fmt.Errorf("job %s: %w", job.JobName, err)
				}
				if !kept.IsEmpty() {
					found = append(found, kept.Map())
				}
			}
		}
	}
	return found, nil
}

// discover returns what the job's only discovery, that of Kubernetes, finds: a group for each of the pods.
func discover(ctx context.Context, job *config.ScrapeConfig, kubeconfig string, pods int) ([]*targetgroup.Group, error) {
	if len(job.ServiceDiscoveryConfigs) != 1 {
		return nil, fmt.Errorf("%d discoveries, want one", len(job.ServiceDiscoveryConfigs))
	}
	c, ok := job.ServiceDiscoveryConfigs[0].(*kubernetes.SDConfig)
	if !ok {
		return nil, fmt.Errorf("a discovery of type %T", job.ServiceDiscoveryConfigs[0])
	}
	c.KubeConfig = kubeconfig // Prometheus is not in the cluster here
	registry := prometheus.NewRegistry()
	metrics := c.NewDiscovererMetrics(registry, discovery.NewRefreshMetrics(registry))
	if err := metrics.Register(); err != nil {
		return nil, err
	}
	d, err := c.NewDiscoverer(discovery.DiscovererOptions{Logger: slog.Default(), Metrics: metrics, SetName: job.JobName})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	updates := make(chan []*targetgroup.Group)
	go d.Run(ctx, updates)
	var all []*targetgroup.Group
	for len(all) < pods {
		select {
		case groups := <-updates:
			all = append(all, groups...)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), fmt.Errorf("%d pods are discovered, want %d", len(all), pods))
		}
	}
	return all, nil
}
