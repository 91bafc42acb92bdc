package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// CallLimit is kubelet's timeout for one call.
const CallLimit = 45 * time.Second

// Kubelet is kubelet's connection to one agent. Close ends it.
type Kubelet struct {
	plugin      drapb.DRAPluginClient
	health      drahealthv1.DRAResourceHealthClient
	connections []*grpc.ClientConn
}

// Register performs one registration, as kubelet does when it finds the agent's registration socket.
func (a *Agent) Register(ctx context.Context) (*Kubelet, error) {
	if err := a.Alive(); err != nil {
		return nil, err
	}
	return Register(ctx, a.Registration())
}

// Register performs one registration, as kubelet does when it finds the registration socket.
func Register(ctx context.Context, socket string) (_ *Kubelet, err error) {
	k := &Kubelet{}
	defer func() {
		if err != nil {
			k.Close()
		}
	}()
	registration, err := k.dial(socket)
	if err != nil {
		return nil, err
	}
	client := registerapi.NewRegistrationClient(registration)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if info.GetName() != Driver || info.GetType() != registerapi.DRAPlugin {
		return nil, fmt.Errorf("registered as %s %s", info.GetType(), info.GetName())
	}
	plugin, err := k.dial(info.GetEndpoint())
	if err != nil {
		return nil, err
	}
	k.plugin, k.health = drapb.NewDRAPluginClient(plugin), drahealthv1.NewDRAResourceHealthClient(plugin)
	_, err = client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	return k, err
}

func (k *Kubelet) dial(socket string) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		k.connections = append(k.connections, connection)
	}
	return connection, err
}

// Close ends the connections.
func (k *Kubelet) Close() {
	for _, connection := range k.connections {
		_ = connection.Close()
	}
}

// Prepare prepares one claim, as kubelet does. It returns the devices, or the error of the call or of the claim.
func (k *Kubelet) Prepare(ctx context.Context, claim *drapb.Claim) ([]*drapb.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	response, err := k.plugin.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{claim}})
	if err != nil {
		return nil, err
	}
	answer, ok := response.GetClaims()[claim.GetUid()]
	switch {
	case !ok:
		return nil, errors.New("no answer for the claim")
	case answer.GetError() != "":
		return nil, errors.New(answer.GetError())
	}
	return answer.GetDevices(), nil
}

// Unprepare unprepares one claim, as kubelet does.
func (k *Kubelet) Unprepare(ctx context.Context, claim *drapb.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	response, err := k.plugin.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{claim}})
	if err != nil {
		return err
	}
	answer, ok := response.GetClaims()[claim.GetUid()]
	switch {
	case !ok:
		return errors.New("no answer for the claim")
	case answer.GetError() != "":
		return errors.New(answer.GetError())
	}
	return nil
}
