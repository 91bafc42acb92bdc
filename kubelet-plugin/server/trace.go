package server

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// tracer makes the spans of kubelet's calls. They cost nothing if the program does not send them.
var tracer = otel.Tracer("github.com/tessera-gpu/tessera/kubelet-plugin/server")

// traced makes a span of each call, below kubelet's if kubelet sends one. The helper accepts interceptors only, and otelgrpc has none.
func traced(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	ctx = otel.GetTextMapPropagator().Extract(ctx, carrier(incoming))
	ctx, span := tracer.Start(ctx, info.FullMethod, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("rpc.system", "grpc")))
	answer, err := handler(ctx, request)
	endSpan(span, err)
	return answer, err
}

// endSpan ends a span, with the error if there is one.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// carrier reads the parent of a span from the metadata of a call.
type carrier metadata.MD

// Get returns the first value of a key.
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set sets the value of a key.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys returns all keys.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}
