// Command dcgm-exporter serves the metrics of the GPUs of its container, under DCGM's names. As nv-hostengine it serves them to exporters that have
// DCGM_REMOTE_HOSTENGINE_INFO set; those query no GPU themselves. It holds the driver open as long as it runs, as the real ones do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, filepath.Base(os.Args[0])); err != nil {
		fmt.Fprintln(os.Stderr, "dcgm:", err)
		os.Exit(1)
	}
}

const (
	enginePort   = ":5555"
	exporterPort = ":9400"
	engine       = "nv-hostengine"
)

func run(ctx context.Context, name string) error {
	address := exporterPort
	if name == engine {
		address = enginePort
	} else if listen := os.Getenv("DCGM_EXPORTER_LISTEN"); listen != "" {
		address = listen
	}
	source, err := source(name)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { serve(w, r, source) })
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // it ends
	fmt.Printf("%s serves on %s\n", name, address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// metrics writes the current measurements of the GPUs.
type metrics func(context.Context, io.Writer) error

// source is the engine of DCGM_REMOTE_HOSTENGINE_INFO, or the local GPUs.
func source(name string) (metrics, error) {
	if remote := os.Getenv("DCGM_REMOTE_HOSTENGINE_INFO"); remote != "" && name != engine {
		return func(ctx context.Context, w io.Writer) error { return fetch(ctx, remote, w) }, nil
	}
	here, err := openGPUs(os.Getenv("NODE_NAME"))
	return here.write, err
}

// fetch copies the metrics of an engine.
func fetch(ctx context.Context, remote string, w io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+remote+"/metrics", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the host engine answers %s", response.Status)
	}
	_, err = io.Copy(w, response.Body)
	return err
}

func serve(w http.ResponseWriter, r *http.Request, source metrics) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	if err := source(r.Context(), w); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
