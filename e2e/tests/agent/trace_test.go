package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// collector receives spans as a collector of OpenTelemetry does, with the service that is generated from its protocol.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span
	// resource has the attributes of the program that sends the spans.
	resource map[string]string
}

// Export implements the service.
func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		c.resource = map[string]string{}
		for _, attribute := range of.GetResource().GetAttributes() {
			c.resource[attribute.GetKey()] = attribute.GetValue().GetStringValue()
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// serveCollector starts a collector and returns its address.
func serveCollector(t *testing.T) (*collector, string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return c, listener.Addr().String()
}

// of returns the spans of a trace as lines "name < name of its parent", with the claims of those that have one, and the errors.
func (c *collector) of(trace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]string{}
	for _, span := range c.spans {
		names[string(span.GetSpanId())] = span.GetName()
	}
	var lines []string
	for _, span := range c.spans {
		if hex.EncodeToString(span.GetTraceId()) != trace {
			continue
		}
		line := span.GetName()
		for _, attribute := range span.GetAttributes() {
			if key, found := strings.CutPrefix(attribute.GetKey(), "claim."); found && key != "uid" {
				line += " " + key + "=" + attribute.GetValue().GetStringValue()
			}
		}
		if span.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			line += " failed"
		}
		parent, found := names[string(span.GetParentSpanId())]
		if !found {
			parent = hex.EncodeToString(span.GetParentSpanId())
		}
		lines = append(lines, line+" < "+parent)
	}
	slices.Sort(lines)
	return lines
}

// TestSpans: kubelet's trace has a span for each call, claim and step of the agent, which sends them to the collector that the environment names.
func TestSpans(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	c, address := serveCollector(t)
	_, k := n.run("OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name=lab")
	const call, parent = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", "b7ad6b7169203331"
	prepare := func(trace string, device gpu.Device, name string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+parent+"-01")
		_, err := k.client.Prepare(ctx, n.claim(name, []gpu.Device{device}))
		return err
	}
	expect := func(trace string, want ...string) {
		t.Helper()
		n.eventually("spans", func(context.Context) error {
			if diff := cmp.Diff(want, c.of(trace)); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
	}
	const good = "0af7651916cd43dd8448eb211c80319c"
	n.must(prepare(good, n.slice(0, 19, 0), "slice"))
	expect(good, call+" < "+parent, "complete-instance < prepare", "create-instance < prepare", "prepare namespace=default name="+n.name+"-slice shape=mig < "+call,
		"record-prepared < prepare", "record-preparing < prepare", "set-mode < prepare", "verify < prepare", "write-spec < prepare")
	const bad = "1af7651916cd43dd8448eb211c80319c"
	if err := prepare(bad, n.whole(0), "conflict"); err == nil {
		t.Error("a GPU with a slice in use is prepared whole")
	}
	expect(bad, call+" < "+parent, "prepare namespace=default name="+n.name+"-conflict shape=gpu failed < "+call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resource["service.name"] != "tessera-node" || c.resource["k8s.cluster.name"] != "lab" {
		t.Errorf("the spans are those of %v", c.resource)
	}
}

// TestCollectorIsAway: claims are prepared without delay if nothing listens at the address of the collector.
func TestCollectorIsAway(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	_, k := n.run("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1")
	claim := n.claim("slice", []gpu.Device{n.slice(0, 19, 0)})
	k.mustPrepare(claim)
	k.mustUnprepare(claim)
}

// TestLogsAndProfiles: every line of the log is JSON, and profiles are served, if the flags request it.
func TestLogsAndProfiles(t *testing.T) {
	t.Parallel()
	n := newNode(t, "h100x2")
	port, err := harness.HoldPort()
	n.must(err)
	t.Cleanup(port.Release)
	address := fmt.Sprintf("127.0.0.2:%d", port.Number)
	n.args = append(n.args, "--logging-format=json", "--pprof-address="+address)
	a, k := n.run()
	k.mustPrepare(n.claim("gpu", []gpu.Device{n.whole(0)}))
	n.eventually("the profile", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/goroutine?debug=1", nil)
		n.must(err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(response.Body)
		if err == nil && !bytes.Contains(text, []byte("goroutine profile: total")) {
			err = fmt.Errorf("no profile: %.100s", text)
		}
		return err
	})
	a.terminate()
	text, err := os.ReadFile(n.host.Log())
	n.must(err)
	lines := 0
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); lines++ {
		var entry struct{ Msg string }
		if err := json.Unmarshal(scanner.Bytes(), &entry); err != nil || entry.Msg == "" {
			t.Errorf("%v: %s", err, scanner.Text())
		}
	}
	if lines < 10 {
		t.Errorf("the log has %d lines", lines)
	}
}
