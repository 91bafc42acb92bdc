package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/dra-driver/inventory"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
	"github.com/tessera-gpu/tessera/e2e/env/runc"
	"github.com/tessera-gpu/tessera/e2e/fake/fakegpu"
	"github.com/tessera-gpu/tessera/internal/host/cgroup"
	"github.com/tessera-gpu/tessera/kubelet-plugin/cdi"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/limiter"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// claim is the only claim, and implements the limiter's ports to claims.
type claim struct{ prepare.Record }

func (c *claim) Load(string) (prepare.Record, error) { return c.Record, nil }
func (c *claim) Save(r prepare.Record) error         { c.Record = r; return nil }
func (c *claim) List() ([]prepare.Record, error)     { return []prepare.Record{c.Record}, nil }

func (c *claim) LockPrepared(context.Context, prepare.Ref) (prepare.Record, func(), error) {
	return c.Record, func() {}, nil
}

// inventoryOf has the GPUs that were read.
type inventoryOf struct{ node gpu.Node }

func (i inventoryOf) Node() gpu.Node { return i.node }

// noRecords are the records of a node without MIG devices.
type noRecords struct{}

func (noRecords) Held() ([]gpu.Device, bool, error) { return nil, true, nil }

// machine is a fake machine with driver 615 and the controller dmem, and the limiter of its agent.
type machine struct {
	dir     string
	gpu     gpu.GPU
	node    gpu.Node
	claim   *claim
	session *nvml.Session
	server  *limiter.Server
	sockets string
}

func (b *bench) newMachine(ctx context.Context) (*machine, error) {
	dir, err := b.folder.Sub("machine")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own, found := cgroup.Unified(string(text))
	if !found {
		return nil, errors.New("containers of this host have no control groups of version 2: the limits cannot be measured")
	}
	err = errors.Join(
		fakegpu.Install(ctx, dir, fakegpu.Spec{Node: "node1", Machine: "h100x2", DriverVersion: "615.71.09"}), fakegpu.SetMemoryBackend(dir, fakegpu.Dmem))
	if err == nil {
		_, err = fakegpu.AddGroup(dir, own, "misc", "dmem")
	}
	if err != nil {
		return nil, err
	}
	m := &machine{dir: dir, sockets: filepath.Join(b.folder.Memory, "s")}
	m.session = nvml.New(nvml.Config{
		Library: func() (string, error) { return fakegpu.Library(dir), nil }, SysRoot: fakegpu.SysRoot(dir), Cgroups: fakegpu.Hierarchy(dir),
	})
	m.node = inventory.New(ctx, inventory.Config{Node: "node1", Hardware: m.session, Records: noRecords{}}).Node()
	if len(m.node.GPUs) == 0 || m.node.GPUs[0].Limiter != gpu.LimitedByDmem {
		return nil, fmt.Errorf("the fake driver does not limit memory: %+v", m.node.GPUs)
	}
	m.gpu = m.node.GPUs[0]
	use := gpu.Device{GPU: m.gpu.Name(), Use: gpu.Use{Shape: gpu.TimeShare, Share: gpu.Share{MemoryBytes: 2 << 30, Shares: 1}}}
	m.claim = &claim{prepare.Record{
		Ref: prepare.Ref{UID: "claim", Namespace: "default", Name: "claim"}, State: prepare.StatePrepared,
		Wanted: []prepare.Wanted{{Result: prepare.Result{Request: "share", Device: m.gpu.Name() + "-timeshare"}, Use: use}},
	}}
	m.server = limiter.New(limiter.Config{
		Sockets: m.sockets, Name: "agent", Hierarchy: fakegpu.Hierarchy(dir), Containers: filepath.Join(dir, "containers"),
		Records: m.claim, Claims: m.claim, Inventory: inventoryOf{m.node}, Driver: m.session,
		Failed: func(prepare.Ref, error) {}, Resized: func(prepare.Ref, string) {},
	})
	return m, nil
}

// serve serves the hooks until stop is called.
func (m *machine) serve(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.server.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// connect sends the request of a container's hook.
func (m *machine) connect(r hook.LimitRequest) error {
	connection, err := net.Dial("unix", filepath.Join(m.sockets, "agent.sock"))
	if err != nil {
		return err
	}
	defer connection.Close() //nolint:errcheck // the answer was read
	var answer hook.LimitAnswer
	if err := errors.Join(json.NewEncoder(connection).Encode(r), json.NewDecoder(connection).Decode(&answer)); err != nil || answer.Error == "" {
		return err
	}
	return errors.New(answer.Error)
}

// specs returns the configuration of a container of each variant. All have the hook that makes the files of their control group's controllers.
func (m *machine) specs(program, mirror string) (map[string]oci.Spec, error) {
	folder := filepath.Join(m.dir, "cdi")
	specs := cdi.New(cdi.Config{
		Dir: folder, Hook: program, Limits: m.sockets, Leads: func() bool { return true },
		Roots: driverroot.Roots{
			Host: "/", Proc: fakegpu.ProcRoot(m.dir), Sys: fakegpu.SysRoot(m.dir), Driver: fakegpu.DriverRoot(m.dir), Dev: fakegpu.DevRoot(m.dir),
		},
	})
	w := m.claim.Wanted[0]
	ids, err := specs.Write(m.claim.UID, []prepare.Prepared{{Result: w.Result, Use: w.Use, GPU: m.gpu}})
	if err != nil {
		return nil, err
	}
	all := map[string]oci.Spec{}
	for _, name := range []string{noop, unlimited, limited} {
		spec := runc.Spec()
		spec.Hooks = &oci.Hooks{CreateRuntime: []oci.Hook{{Path: mirror, Args: []string{"fakegpu", "group", "--dir=" + m.dir}}}}
		if name != noop {
			if err := runc.Inject(&spec, folder, ids[0]...); err != nil {
				return nil, err
			}
		}
		if name == unlimited {
			spec.Hooks.CreateRuntime = slices.DeleteFunc(spec.Hooks.CreateRuntime, func(h oci.Hook) bool { return slices.Contains(h.Args, hook.LimitMemory) })
		}
		all[name] = spec
	}
	return all, nil
}
