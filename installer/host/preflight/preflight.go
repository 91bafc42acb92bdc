package preflight

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tessera-gpu/tessera/installer/host"
	"github.com/tessera-gpu/tessera/installer/host/survey"
)

// Verb is the name of the verb.
const Verb = "preflight"

// Want has the requirements of the driver container.
type Want struct {
	// Kernel and OS are those for which the image was selected; empty values are not compared.
	Kernel, OS string
	// Modules is the source of the kernel modules.
	Modules Modules
	// MinFree is the space in bytes that the driver's files need.
	MinFree uint64
}

// Modules is the source of the kernel modules.
type Modules string

// Sources of kernel modules.
const (
	// Precompiled modules are in the image, with a signature that the firmware trusts.
	Precompiled Modules = "precompiled"
	// Compiled modules are built on the node, with headers that the image downloads or contains. They are unsigned.
	Compiled Modules = "compiled"
	// CompiledWithHostHeaders modules are built with the headers of the host.
	CompiledWithHostHeaders Modules = "compiled-with-host-headers"
)

// Seen has the observed properties of a host.
type Seen struct {
	Kernel, OS string
	SecureBoot bool
	// HostDriver is the version of the host's own driver; empty means none.
	HostDriver string
	// Nouveau is the use count of the open-source driver of the kernel: -1 if it is not loaded.
	Nouveau int
	// Headers reports whether the host has the headers of its running kernel.
	Headers bool
	// Disks are the locations of the driver's files.
	Disks []Disk
}

// Disk is the free space of a location.
type Disk struct {
	Path string
	Free uint64
	// Need is the required space in bytes if it differs from Want.MinFree.
	Need uint64
}

// Reasons why a driver cannot be installed.
const (
	KernelChanged  = "KernelChanged"
	OSChanged      = "OSChanged"
	HostDriver     = "HostDriver"
	NouveauInUse   = "NouveauInUse"
	SecureBoot     = "SecureBoot"
	HeadersMissing = "HeadersMissing"
	DiskFull       = "DiskFull"
)

// Check returns everything that prevents the installation of the driver, the most decisive first.
func Check(want Want, seen Seen) []host.Failure {
	var found []host.Failure
	complain := func(reason, format string, arguments ...any) {
		found = append(found, host.Failure{Reason: reason, Message: fmt.Sprintf(format, arguments...)})
	}
	if differs(want.Kernel, seen.Kernel) {
		complain(KernelChanged, "this driver is for kernel %s and the node runs %s; the installer selects another driver when the discovery has reported the kernel",
			want.Kernel, seen.Kernel)
	}
	if differs(want.OS, seen.OS) {
		complain(OSChanged, "this driver is for %s and the node runs %s; the installer selects another driver when the discovery has reported the operating system", want.OS, seen.OS)
	}
	if seen.HostDriver != "" {
		complain(HostDriver, "driver %s is installed on the host; remove it, or set hostDriver: Keep and a minVersion that is not newer",
			seen.HostDriver)
	}
	if seen.Nouveau > 0 {
		complain(NouveauInUse, "the module nouveau is in use %d times; blacklist it (modprobe.d: blacklist nouveau) and restart the node", seen.Nouveau)
	}
	if seen.SecureBoot && want.Modules != Precompiled {
		complain(SecureBoot, "secure boot is on and the kernel rejects unsigned modules, which are those compiled on the node; "+
			"set usePrecompiled, or disable secure boot")
	}
	if want.Modules == CompiledWithHostHeaders && !seen.Headers {
		complain(HeadersMissing, "no headers of kernel %s in /lib/modules/%s/build; install the package with them (linux-headers-%[1]s, kernel-devel-%[1]s)",
			seen.Kernel, seen.Kernel)
	}
	for _, disk := range seen.Disks {
		if need := cmp.Or(disk.Need, want.MinFree); disk.Free < need {
			complain(DiskFull, "%s has %d MiB free and the driver needs %d MiB; free some space", disk.Path, disk.Free>>20, need>>20)
		}
	}
	return found
}

// differs compares a value with the expected one; an empty expectation matches everything.
func differs(want, seen string) bool { return want != "" && want != seen }

// Result returns the result of the check: the first reason, and all failures in the message.
func Result(want Want, seen Seen) host.Result {
	found := Check(want, seen)
	if len(found) == 0 {
		return host.Outcome(Verb, false, fmt.Sprintf("%s with kernel %s supports the driver", seen.OS, seen.Kernel), nil)
	}
	messages := make([]string, len(found))
	for i, f := range found {
		messages[i] = f.Message
	}
	return host.Outcome(Verb, false, "", &host.Failure{Reason: found[0].Reason, Message: strings.Join(messages, "; ")})
}

// references returns the use count of a module: -1 if it is not loaded.
func references(modules []survey.Module, name string) int {
	for _, m := range modules {
		if m.Name == name {
			return m.Refs
		}
	}
	return -1
}

// Validate rejects unknown sources.
func (m Modules) Validate() error {
	switch m {
	case Precompiled, Compiled, CompiledWithHostHeaders:
		return nil
	}
	return fmt.Errorf("modules %q: must be %s, %s or %s", m, Precompiled, Compiled, CompiledWithHostHeaders)
}
