package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/internal/host/atomicfile"
	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/hook"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Config has the locations of the specs and their inputs.
type Config struct {
	// Dir is the folder from which the runtime reads specs, as a path of this process: /var/run/cdi.
	Dir string
	// Roots are the paths of the host's file systems in this process.
	Roots driverroot.Roots
	// Hook is the host path of the installed hook program.
	Hook string
	// Limits is the folder of the sockets on which agents limit the GPU memory of containers, as a host path.
	Limits string
	// Nodes loads the driver's modules and makes its device nodes for this process. It is called when the driver has changed; nil does neither.
	Nodes func() error
	// Leads reports whether this process writes the common spec: of two agents that overlap in an upgrade only the
	// newest does. It may be called for every claim.
	Leads func() bool
	// Files is the file system of the specs; nil means the host's.
	Files disk.FileSystem
}

// Specs writes the specs of one node. It is safe for concurrent use; the caller serializes calls for one claim.
type Specs struct {
	config Config

	mu          sync.Mutex
	fingerprint driverroot.Fingerprint
	driver      driverroot.Driver
	problem     string
}

// New returns Specs that have not read the driver yet, because a node may wait for its driver.
func New(config Config) *Specs { return &Specs{config: config} }

// Refresh reads the driver again and, if this process leads, writes the common spec unconditionally. It is called when
// the process becomes the leader and when another driver has been loaded. The error names the missing path or wraps
// gpu.ErrNoDriver.
func (s *Specs) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fingerprint = ""
	if err := errors.Join(s.refresh(), atomicfile.RemoveTemporary(s.config.Files, s.path(ownPrefix))); err != nil {
		return fmt.Errorf("refresh the common CDI spec: %w", err)
	}
	return nil
}

// Write writes the claim's spec, replacing an older one, and returns the CDI ids of each device, its own id before the
// common one. It reads the driver again if that has changed, and updates the common spec first. Every host file that the
// spec names is checked: the error names the missing path or wraps gpu.ErrNoDriver, and the claim's spec is unchanged.
func (s *Specs) Write(claimUID string, devices []prepare.Prepared) ([][]string, error) {
	ids, err := s.write(claimUID, devices)
	if err != nil {
		return nil, fmt.Errorf("write CDI spec of claim %s: %w", claimUID, err)
	}
	return ids, nil
}

func (s *Specs) write(claimUID string, devices []prepare.Prepared) ([][]string, error) {
	if usesPassthrough(devices) {
		return s.passthrough(claimUID, devices)
	}
	driver, err := s.current()
	if err != nil {
		return nil, err
	}
	grants := make([]grant, len(devices))
	for i, device := range devices {
		node, err := driver.GPU(device.GPU.Minor)
		if err != nil {
			return nil, err
		}
		grants[i] = grant{Prepared: device, gpu: node, hooks: s.limitHooks(device, hook.LimitedDevice{Claim: claimUID, Position: i})}
	}
	extras, err := s.extras(driver, devices)
	if err != nil {
		return nil, err
	}
	spec, ids, err := claim(claimUID, driver, grants, extras)
	if err != nil {
		return nil, err
	}
	return ids, s.writeSpec(claimFile(claimUID), spec)
}

// limitHooks returns the hook that limits the GPU memory of a container with the device; none for a device whose containers need no limit.
func (s *Specs) limitHooks(device prepare.Prepared, named hook.LimitedDevice) []*cdispec.Hook {
	if _, limited := device.GPU.Limiter.MemoryLimit(device.Use.Use); !limited {
		return nil
	}
	return []*cdispec.Hook{newHook("createRuntime", s.config.Hook, hook.LimitArgs(s.config.Limits, named))}
}

// extras returns the additional device nodes that the devices' parameters request, each once. The error wraps
// gpu.ErrUnsupported if the node lacks one.
func (s *Specs) extras(driver driverroot.Driver, devices []prepare.Prepared) ([]extra, error) {
	var requested params.Extras
	for _, device := range devices {
		requested |= device.Settings.Extras
	}
	var extras []extra
	for _, name := range requested.List() {
		found, err := s.config.Roots.Extra(driver, string(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("parameter devices: %w: %w", err, gpu.ErrUnsupported)
		case err != nil:
			return nil, fmt.Errorf("parameter devices: %w", err)
		}
		extras = append(extras, extra{name: name, Extra: found})
	}
	return extras, nil
}

// Remove removes the claim's spec. A missing spec is not an error.
func (s *Specs) Remove(claimUID string) error {
	if err := disk.RemoveIfExists(s.config.Files, s.path(claimFile(claimUID))); err != nil {
		return fmt.Errorf("remove CDI spec of claim %s: %w", claimUID, err)
	}
	return nil
}

// List returns the UIDs of the claims that have a spec.
func (s *Specs) List() ([]string, error) {
	entries, err := os.ReadDir(s.config.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI specs: %w", err)
	}
	var claims []string
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), claimPrefix)
		if uid, ok := strings.CutSuffix(rest, extension); ours && ok {
			claims = append(claims, uid)
		}
	}
	return claims, nil
}

// current updates the common spec and returns the present driver.
func (s *Specs) current() (driverroot.Driver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refresh()
	return s.driver, err
}

// Problem returns why the common spec could not be written the last time, which every claim needs. It is empty if it could, and without a driver.
func (s *Specs) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// refresh updates the common spec and remembers why it could not. The caller holds mu.
func (s *Specs) refresh() error {
	err := s.update()
	s.problem = ""
	if err != nil && !errors.Is(err, gpu.ErrNoDriver) {
		s.problem = err.Error()
	}
	return err
}

// update reads the driver if it has changed since the last read, and then, or if the common spec is missing, writes the
// common spec. A process that does not lead only checks that the common spec exists.
func (s *Specs) update() error {
	fingerprint, err := s.config.Roots.Fingerprint()
	switch {
	case errors.Is(err, driverroot.ErrNotLoaded):
		return fmt.Errorf("%w: %w", gpu.ErrNoDriver, err)
	case err != nil:
		return err
	}
	_, missing := os.Lstat(s.path(commonFile))
	if fingerprint == s.fingerprint && missing == nil {
		return nil
	}
	driver, fingerprint, err := s.scan()
	if err != nil {
		return err
	}
	switch {
	case s.config.Leads():
		spec, err := common(driver, s.config.Hook)
		if err != nil {
			return err
		}
		if err := s.writeSpec(commonFile, spec); err != nil {
			return err
		}
	case missing != nil:
		return fmt.Errorf("the leading agent has not written the common spec yet: %w", missing)
	}
	s.fingerprint, s.driver = fingerprint, driver
	return nil
}

// scan makes the driver's nodes and reads the driver, with the fingerprint from afterwards: a module may have been loaded.
func (s *Specs) scan() (driver driverroot.Driver, fingerprint driverroot.Fingerprint, err error) {
	if s.config.Nodes != nil {
		if err := s.config.Nodes(); err != nil {
			return driver, "", err
		}
	}
	if fingerprint, err = s.config.Roots.Fingerprint(); err != nil {
		return driver, "", err
	}
	driver, err = driverroot.Scan(s.config.Roots)
	return driver, fingerprint, err
}

func (s *Specs) path(name string) string { return filepath.Join(s.config.Dir, name) }
