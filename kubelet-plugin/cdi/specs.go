package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/params"
	"github.com/tessera-gpu/tessera/kubelet-plugin/driverroot"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Config says where specs are written and what they are made from.
type Config struct {
	// Dir is the folder in which the runtime looks for specs, as this process sees it: /var/run/cdi.
	Dir string
	// Roots are where this process sees the host.
	Roots driverroot.Roots
	// Hook is the host path of the installed hook program.
	Hook string
	// Leads reports whether this process is the one that writes the common spec: of two agents that
	// overlap in an upgrade only the newest does. It may be called for every claim.
	Leads func() bool
}

// Specs writes specs for one node. It is safe for concurrent use; calls for one claim are serialized
// by the caller.
type Specs struct {
	config Config

	mu          sync.Mutex
	fingerprint driverroot.Fingerprint
	driver      driverroot.Driver
}

// New returns Specs that have looked at nothing yet: a node may wait for its driver.
func New(config Config) *Specs { return &Specs{config: config} }

// Refresh reads the driver anew and, where this process leads, writes the common spec, whatever stood
// there. It is called when the process starts to lead and when another driver was loaded. An error
// names the path that is missing, or wraps gpu.ErrNoDriver.
func (s *Specs) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fingerprint = ""
	if err := errors.Join(s.refresh(), s.removeTemporaryFiles()); err != nil {
		return fmt.Errorf("refresh the common CDI spec: %w", err)
	}
	return nil
}

// Write writes the claim's spec, replacing an older one, and returns for each device its CDI ids, its
// own before the common one. It reads the driver anew if that has changed, and brings the common spec
// up to date first. Every host file that the spec names is checked: an error names the missing path,
// or wraps gpu.ErrNoDriver, and the claim's spec is as before.
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
		node, err := s.config.Roots.GPU(driver, device.GPU.Minor)
		if err != nil {
			return nil, err
		}
		grants[i] = grant{Prepared: device, gpu: node}
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

// extras finds what the devices ask for beside themselves, each once.
func (s *Specs) extras(driver driverroot.Driver, devices []prepare.Prepared) ([]extra, error) {
	var asked params.Extras
	for _, device := range devices {
		asked |= device.Settings.Extras
	}
	var extras []extra
	for _, name := range asked.List() {
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

// Remove removes the claim's spec. A missing one is no error.
func (s *Specs) Remove(claimUID string) error {
	err := os.Remove(s.path(claimFile(claimUID)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CDI spec of claim %s: %w", claimUID, err)
	}
	return nil
}

// List returns the claims that have a spec, by UID.
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

// current returns the driver as it is now, after the common spec was brought up to date.
func (s *Specs) current() (driverroot.Driver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.refresh()
	return s.driver, err
}

// refresh reads the driver if it has changed since it was read, and writes the common spec then and
// when it is gone. A process that does not lead only makes sure that there is one.
func (s *Specs) refresh() error {
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
	driver, err := driverroot.Scan(s.config.Roots)
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

func (s *Specs) path(name string) string { return filepath.Join(s.config.Dir, name) }
