package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/api/wire"
	"github.com/tessera-gpu/tessera/e2e/bench/testbed"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
)

// floorCommand makes this program the null plugin, which does no work.
const floorCommand = "floor"

// noop answers every call at once. It publishes the same devices as our agent, with the helper's own
// publisher.
type noop struct{}

func (noop) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answers := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		answer := kubeletplugin.PrepareResult{}
		for _, result := range claim.Status.Allocation.Devices.Results {
			answer.Devices = append(answer.Devices, kubeletplugin.Device{
				Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, CDIDeviceIDs: []string{"example.com/gpu=" + result.Device},
			})
		}
		answers[claim.UID] = answer
	}
	return answers, nil
}

func (noop) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answers := map[types.UID]error{}
	for _, claim := range claims {
		answers[claim.UID] = nil
	}
	return answers, nil
}

func (noop) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, msg, err)
}

func (noop) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

// place is where the plugin runs.
type place struct{ kubeconfig, node, plugins, registry, uid string }

// floor is the main function of the null plugin.
func floor(args []string) int {
	var p place
	flags := flag.NewFlagSet(floorCommand, flag.ContinueOnError)
	flags.StringVar(&p.kubeconfig, "kubeconfig", "", "how the API server is reached")
	flags.StringVar(&p.node, "node", "", "name of the node")
	flags.StringVar(&p.plugins, "plugin-dir", "", "folder of the plugin")
	flags.StringVar(&p.registry, "registry-dir", "", "folder of registrations")
	flags.StringVar(&p.uid, "uid", "", "UID of the pod; empty for a plugin that overlaps with no other")
	if err := flags.Parse(args); err != nil {
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := p.serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (p place) serve(ctx context.Context) error {
	access, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return err
	}
	access.QPS = -1
	access.ContentType, access.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(harness.Driver), kubeletplugin.NodeName(p.node), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(p.plugins), kubeletplugin.RegistrarDirectoryPath(p.registry), kubeletplugin.Serialize(false),
	}
	if p.uid != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(p.uid)))
	}
	helper, err := kubeletplugin.Start(ctx, noop{}, options...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	resources, err := p.resources()
	if err != nil {
		return err
	}
	if err := helper.PublishResources(ctx, resources); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// resources are the devices that our agent publishes with its defaults.
func (p place) resources() (resourceslice.DriverResources, error) {
	m, err := catalog.FindMachine(testbed.Machine)
	if err != nil {
		return resourceslice.DriverResources{}, err
	}
	node, err := m.Node(p.node)
	if err != nil {
		return resourceslice.DriverResources{}, err
	}
	offer, err := v1alpha1.Default().Offer()
	if err != nil {
		return resourceslice.DriverResources{}, err
	}
	pool, err := wire.Encode(node, wire.Options{Driver: harness.Driver, Offer: offer})
	if err != nil {
		return resourceslice.DriverResources{}, err
	}
	var slices []resourceslice.Slice
	for _, s := range pool.Slices {
		slices = append(slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool.Name: {Slices: slices}}}, nil
}

// registration is the name of the plugin's registration socket.
func registration(registry, uid string) string {
	if uid == "" {
		return harness.Driver + "-reg.sock"
	}
	return kubeletplugin.RollingUpdateRegistrarSocketFile(registry, harness.Driver, types.UID(uid))
}
