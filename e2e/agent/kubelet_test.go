package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/wire"
)

// callLimit is how long kubelet waits for one call.
const callLimit = 45 * time.Second

// kubelet is a connection to one agent as kubelet holds it.
type kubelet struct {
	node   *node
	plugin drapb.DRAPluginClient
}

// connect does what kubelet does when it finds the agent's registration socket.
func (a *agent) connect() *kubelet {
	a.node.t.Helper()
	var k *kubelet
	a.node.eventually("kubelet finds the plugin", func(ctx context.Context) (err error) {
		select {
		case <-a.ended:
			return fmt.Errorf("the agent ended: %v", a.cmd.ProcessState)
		default:
		}
		k, err = a.register(ctx)
		return err
	})
	return k
}

// register is one try.
func (a *agent) register(ctx context.Context) (*kubelet, error) {
	registration, err := a.dial(filepath.Join(a.node.registry(), fmt.Sprintf("%s-%s-reg.sock", driver, a.uid)))
	if err != nil {
		return nil, err
	}
	client := registerapi.NewRegistrationClient(registration)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if info.GetName() != driver || info.GetType() != registerapi.DRAPlugin {
		return nil, fmt.Errorf("registered as %s %s", info.GetType(), info.GetName())
	}
	plugin, err := a.dial(info.GetEndpoint())
	if err != nil {
		return nil, err
	}
	_, err = client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	return &kubelet{node: a.node, plugin: drapb.NewDRAPluginClient(plugin)}, err
}

func (a *agent) dial(socket string) (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		a.node.t.Cleanup(func() { _ = connection.Close() })
	}
	return connection, err
}

// prepare is kubelet's call for one claim: the devices, or the error of the call or of the claim.
func (k *kubelet) prepare(claim *drapb.Claim) ([]*drapb.Device, error) {
	ctx, cancel := context.WithTimeout(k.node.t.Context(), callLimit)
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

// unprepare is kubelet's call for one claim.
func (k *kubelet) unprepare(claim *drapb.Claim) error {
	ctx, cancel := context.WithTimeout(k.node.t.Context(), callLimit)
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

// mustPrepare is prepare of a claim that must succeed.
func (k *kubelet) mustPrepare(claim *drapb.Claim) []*drapb.Device {
	k.node.t.Helper()
	devices, err := k.prepare(claim)
	if err != nil {
		k.node.t.Fatalf("prepare %s: %v", claim.GetName(), err)
	}
	return devices
}

func (k *kubelet) mustUnprepare(claim *drapb.Claim) {
	k.node.t.Helper()
	if err := k.unprepare(claim); err != nil {
		k.node.t.Fatalf("unprepare %s: %v", claim.GetName(), err)
	}
}

// change adapts a claim before it is created or, for its status, before that is written.
type change func(*resourceapi.ResourceClaim)

// claim makes a claim that holds the devices of the node, as the scheduler leaves it.
func (n *node) claim(name string, devices []gpu.Device, changes ...change) *drapb.Claim {
	n.t.Helper()
	claims := shared.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	object := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: n.name + "-" + name}}
	allocation := &resourceapi.AllocationResult{}
	for i, device := range devices {
		request := fmt.Sprintf("r%d", i)
		object.Spec.Devices.Requests = append(object.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name:    request,
			Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1},
		})
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: driver, Pool: wire.PoolName(n.name, driver), Device: wire.DeviceName(device),
		})
	}
	object.Status.Allocation = allocation
	for _, change := range changes {
		change(object)
	}
	status := object.Status
	created, err := claims.Create(n.t.Context(), object, metav1.CreateOptions{})
	n.must(err)
	created.Status = status
	created, err = claims.UpdateStatus(n.t.Context(), created, metav1.UpdateOptions{})
	n.must(err)
	return &drapb.Claim{Namespace: created.Namespace, Name: created.Name, Uid: string(created.UID)}
}

// whole is the whole GPU at the index, slice the MIG placement of the profile there.
func (n *node) whole(index int) gpu.Device {
	return gpu.Device{GPU: n.hardware.GPUs[index].Name(), Use: gpu.Use{Shape: gpu.Whole}}
}

func (n *node) slice(index, profile, start int) gpu.Device {
	n.t.Helper()
	g := n.hardware.GPUs[index]
	for _, p := range g.Geometry.Placements(profile) {
		if p.Start == start {
			return gpu.Device{GPU: g.Name(), Use: gpu.Use{Shape: gpu.MIG, Placement: p}}
		}
	}
	n.t.Fatalf("no placement of profile %d at %d on GPU %d", profile, start, index)
	return gpu.Device{}
}
