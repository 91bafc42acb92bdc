package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/tessera-gpu/tessera/internal/scrape"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
)

// The paths of the endpoint's checks.
const (
	readyPath = "/readyz"
	livePath  = "/livez"
)

// resizePath changes the memory limit of a claim: a limiter.Resize is answered by a limiter.Resized.
const resizePath = "/resize"

// maxResize is the maximum size of a request to resizePath, in bytes.
const maxResize = 4 << 10

// off is the address of an endpoint that is not served.
const off = "0"

// endpoint serves /metrics over TLS to clients that may get it, /readyz and /livez there to all, for kubelet's probes, all of them on a socket of the agent's
// container, and profiles.
type endpoint struct {
	// address is the TCP address of the metrics, profiles that of pprof, without TLS and token; off: none.
	address, profiles string
	// socket is the path of the socket, which only root can open.
	socket  string
	client  kubernetes.Interface
	metrics prometheus.Gatherer
	// ready returns why the agent is not ready; nil if it is.
	ready func(context.Context) error
	// live returns why the agent must be restarted; nil if it progresses.
	live func() error
	// resize changes the memory limit of a claim.
	resize func(context.Context, limiter.Resize) (limiter.Resized, error)
}

// Run serves until ctx ends.
func (e endpoint) Run(ctx context.Context) error {
	metrics := promhttp.HandlerFor(e.metrics, promhttp.HandlerOpts{})
	local := http.NewServeMux()
	local.Handle("GET "+scrape.Path, metrics)
	e.serveChecks(local)
	local.HandleFunc("POST "+resizePath, e.serveResize)
	// The socket of an agent that was killed.
	if err := os.Remove(e.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("serve on %s: %w", e.socket, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, "unix", e.socket, nil, local) })
	if e.address != off {
		group.Go(func() error {
			remote := http.NewServeMux()
			remote.Handle("GET "+scrape.Path, scrape.Require(e.client, metrics))
			e.serveChecks(remote)
			config, err := scrape.SelfSigned("tessera-node")
			if err != nil {
				return err
			}
			return serve(ctx, "tcp", e.address, config, remote)
		})
	}
	if e.profiles != off {
		group.Go(func() error { return serve(ctx, "tcp", e.profiles, nil, profiles()) })
	}
	return group.Wait()
}

// serveChecks adds the checks to mux.
func (e endpoint) serveChecks(mux *http.ServeMux) {
	serve := func(path string, check func(context.Context) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := check(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	serve(readyPath, e.ready)
	serve(livePath, func(context.Context) error { return e.live() })
}

// serveResize serves resizePath.
func (e endpoint) serveResize(w http.ResponseWriter, r *http.Request) {
	var request limiter.Resize
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxResize)).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result, err := e.resize(r.Context(), request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_ = json.NewEncoder(w).Encode(result)
}

// profiles returns the handler of net/http/pprof.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serve serves on the address until ctx ends, over TLS if it is configured.
func serve(ctx context.Context, network, address string, config *tls.Config, handler http.Handler) error {
	listener, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", address, err)
		}
		return nil
	})
	return group.Wait()
}

// query returns the response of the running agent at the socket to a GET. The error of a check is the reason why it fails.
func query(ctx context.Context, socket, path string) ([]byte, error) {
	return call(ctx, socket, http.MethodGet, path, nil)
}

// call returns the response of the running agent at the socket.
func call(ctx context.Context, socket, method, path string, body io.Reader) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("query the agent: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("query the agent: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
