// Package tracing sends the spans of a program over OTLP (gRPC), as the standard variables of the environment configure it.
//
// Variables: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/klog/v2"
)

// Start makes the process send its spans if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set and OTEL_SDK_DISABLED is not true.
// Otherwise spans cost nothing. A collector that does not respond neither delays nor fails anything; its errors are logged. stop sends the last spans.
func Start(ctx context.Context, service, version string) (stop func(context.Context) error, err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return func(context.Context) error { return nil }, nil
	}
	logger := klog.FromContext(ctx)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Error(err, "Spans are lost") }))
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	// The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, so that they override the attributes.
	attributes, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", errors.Join(err, exporter.Shutdown(ctx)))
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(attributes))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return provider.Shutdown, nil
}
