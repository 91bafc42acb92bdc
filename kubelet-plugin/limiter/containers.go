package limiter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Usage is what a container has allocated of a GPU, and its limit.
type Usage struct {
	GPU string
	// Claim is the claim of the container's devices of the GPU; zero if they are of several.
	Claim prepare.Ref
	// Namespace, Pod and Container are empty if the runtime does not name them.
	Namespace, Pod, Container string
	LimitBytes, UsedBytes     uint64
	// Refused is the number of allocations beyond the limit; nil where the kernel does not count them.
	Refused *uint64
}

// record stores a container with its devices until its control group is gone, so that the agent that starts next has it too.
func (s *Server) record(r hook.LimitRequest) error {
	if err := disk.MakeFolder(nil, s.Containers, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record the limited container %s: %w", r.Group, err)
	}
	sum := sha256.Sum256([]byte(r.Group))
	// A power loss ends the containers too.
	return atomicfile.Write(filepath.Join(s.Containers, hex.EncodeToString(sum[:8])+".json"), text, atomicfile.Options{Mode: 0o600, Volatile: true})
}

// containers returns the limited containers whose control group exists, and removes the records of the others.
func (s *Server) containers(ctx context.Context) ([]hook.LimitRequest, error) {
	paths, err := filepath.Glob(filepath.Join(s.Containers, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []hook.LimitRequest
	for _, path := range paths {
		var r hook.LimitRequest
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err == nil {
			_, err = os.Stat(s.folder(r))
		}
		switch {
		case err == nil:
			all = append(all, r)
			continue
		case !errors.Is(err, fs.ErrNotExist):
			klog.FromContext(ctx).Error(err, "The record of a limited container is not readable and is removed", "path", path)
		}
		if err := disk.RemoveIfExists(nil, path); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Usages returns what the limited containers have allocated, by container and GPU. Containers without a limit are left out, and so are those whose GPU
// cannot be queried: their error is returned with the rest.
func (s *Server) Usages(ctx context.Context) ([]Usage, error) {
	containers, err := s.containers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the limited containers: %w", err)
	}
	var all []Usage
	var errs []error
	for _, c := range containers {
		for _, u := range s.usesOf(c) {
			folder := s.folder(c)
			u.LimitBytes, u.UsedBytes, err = s.Driver.MemoryLimit(ctx, u.GPU, folder)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if u.LimitBytes == gpu.NoMemoryLimit {
				continue
			}
			u.Refused = refused(folder, s.pciOf(u.GPU))
			all = append(all, u)
		}
	}
	return all, errors.Join(errs...)
}

// usesOf returns an entry for each GPU of the container, with the claim.
func (s *Server) usesOf(c hook.LimitRequest) []Usage {
	var all []Usage
	at := map[string]int{}
	for _, d := range c.Devices {
		r, err := s.Records.Load(d.Claim)
		if err != nil || d.Position >= len(r.Wanted) {
			continue // the claim is released
		}
		name := r.Wanted[d.Position].Use.GPU
		i, known := at[name]
		if !known {
			at[name] = len(all)
			all = append(all, Usage{GPU: name, Claim: r.Ref, Namespace: cmp.Or(c.Namespace, r.Namespace), Pod: c.Pod, Container: c.Container})
		} else if all[i].Claim != r.Ref {
			all[i].Claim = prepare.Ref{}
		}
	}
	return all
}

// folder returns the folder of the container's control group.
func (s *Server) folder(r hook.LimitRequest) string { return filepath.Join(s.Hierarchy, r.Group) }

func (s *Server) pciOf(gpuName string) string {
	g, _ := s.Inventory.Node().Find(gpuName) // one that is missing has no address, and no region
	return g.PCI
}

// refused returns the number of allocations of the GPU's memory that a limit of the group refused, from dmem.events: lines of a region, then names with
// numbers. nil if the kernel does not have the file (Linux, cgroup/dmem: add per-region event counters).
func refused(folder, pci string) *uint64 {
	text, err := os.ReadFile(filepath.Join(folder, "dmem.events"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.EqualFold(fields[0], "nvidia/0000"+pci+"/vidmem") {
			continue
		}
		for i := 1; i+1 < len(fields); i += 2 {
			if n, err := strconv.ParseUint(fields[i+1], 10, 64); fields[i] == "max" && err == nil {
				return &n
			}
		}
	}
	return nil
}
