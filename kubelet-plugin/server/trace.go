package server

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// tracer makes the spans of kubelet's calls. They cost nothing if the program does not send them.
var tracer = otel.Tracer("github.com/tessera-gpu/tessera/kubelet-plugin/server")

// traced makes a span of each call, below kubelet's if kubelet sends one. The helper accepts interceptors only, and otelgrpc has none.
func traced(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	parent, propagator := propagation.MapCarrier{}, otel.GetTextMapPropagator()
	for _, field := range propagator.Fields() {
		if values := metadata.ValueFromIncomingContext(ctx, field); len(values) > 0 {
			parent[field] = values[0]
		}
	}
	ctx = propagator.Extract(ctx, parent)
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
