package server

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// watchRegistration is a gRPC interceptor that reads from kubelet's call whether the plugin was registered. The helper's RegistrationStatus has the
// same information, but is not safe for concurrent use.
func (s *Server) watchRegistration(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if status, ok := request.(*registerapi.RegistrationStatus); ok {
		s.registered.Store(status.GetPluginRegistered())
		klog.FromContext(ctx).Info("Kubelet responded to the registration",
			"registered", status.GetPluginRegistered(), "reason", status.GetError())
	}
	return handle(ctx, request)
}
