package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// unixScheme is the prefix of addresses that are the path of a socket.
const unixScheme = "unix:"

// network returns the network and the address for net.Listen and net.Dial.
func network(address string) (string, string) {
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		return "unix", path
	}
	return "tcp", address
}

// endpoint serves /metrics, /readyz and /livez.
type endpoint struct {
	address string
	metrics prometheus.Gatherer
	// ready returns why the agent is not ready; nil if it is.
	ready func(context.Context) error
	// live returns why the agent must be restarted; nil if it progresses.
	live func() error
}

// Run serves until ctx ends.
func (e endpoint) Run(ctx context.Context) error {
	var config net.ListenConfig
	kind, address := network(e.address)
	if kind == "unix" {
		// The socket of an agent that was killed.
		if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("serve metrics: %w", err)
		}
	}
	listener, err := config.Listen(ctx, kind, address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, r *http.Request) {
		if err := e.ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET "+livePath, func(w http.ResponseWriter, _ *http.Request) {
		if err := e.live(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// The paths of the endpoint's checks.
const (
	readyPath = "/readyz"
	livePath  = "/livez"
)

// query queries a check of the agent at the address. The error is the reason why it fails.
func query(ctx context.Context, address, check string) error {
	kind, target := network(address)
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, kind, target)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+check, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("query the agent: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("query the agent: %w", err)
	}
	return fmt.Errorf("%s: %s", check, strings.TrimSpace(string(answer)))
}
