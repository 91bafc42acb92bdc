// Package machine runs the computers of a lab: each has its own root folder, processes, host name and network, and dies as a whole.
// What happens inside one is the work of package guest; both speak through the types of this package.
package machine

import (
	"io/fs"
	"time"
)

// Spec is everything the guest must know to boot: it is handed over once, at boot, and never read again.
type Spec struct {
	// Name is the host name.
	Name string `json:"name"`
	// Mounts are put into the new root, in order, after /proc, /sys, /dev, /run and /tmp.
	Mounts []Mount `json:"mounts,omitempty"`
	// Files are written into the new root at every boot.
	Files []File `json:"files,omitempty"`
	// Masks cover files that a program would read or write outside the machine, such as kernel settings: writes stay inside, and end with the boot.
	Masks []File `json:"masks,omitempty"`
	// Settings are written to existing files of the new root, in order: kernel settings of the machine's own network.
	Settings []File `json:"settings,omitempty"`
	// Path is the PATH of every service.
	Path string `json:"path"`
	// Services are started in order of need.
	Services []Service `json:"services,omitempty"`
}

// Mount binds a folder or file of the host into the machine.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// File is a small file with its whole content.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode,omitempty"`
}

// Service is one program the guest keeps running.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Needs names services that must be ready before this one starts for the first time.
	Needs []string `json:"needs,omitempty"`
	// Ready tells when others may rely on this service.
	Ready Probe `json:"ready"`
	// Grace is how long the service may take to end before it is killed; DefaultGrace when zero.
	Grace time.Duration `json:"grace,omitempty"`
}

// DefaultGrace is the grace of most services.
const DefaultGrace = 10 * time.Second

// Probe is how the guest sees that a service is ready. Exactly one field is set.
type Probe struct {
	// URL answers 200. A certificate is not verified: the guest asks itself.
	URL string `json:"url,omitempty"`
	// Socket accepts a connection.
	Socket string `json:"socket,omitempty"`
	// Exit means: ready once the program has ended well. It is then not started again.
	Exit bool `json:"exit,omitempty"`
}

// State of a service.
type State string

// The states of a service.
const (
	Waiting  State = "waiting"  // for the services it needs
	Starting State = "starting" // runs, not ready yet
	Ready    State = "ready"
	Failed   State = "failed"  // ended by itself and is about to be started again
	Stopped  State = "stopped" // by request
)

// Operation is what a request to the guest asks for.
type Operation string

// The operations of a guest.
const (
	// OpStatus answers at once with the state of every service.
	OpStatus Operation = "status"
	// OpWait answers when every service that was not stopped is ready.
	OpWait Operation = "wait"
	// OpStart starts a stopped service and answers when it is ready.
	OpStart Operation = "start"
	// OpStop ends a service, by SIGTERM and after a while by SIGKILL, and answers when it is gone. Its children stay, as under systemd's KillMode=process.
	OpStop Operation = "stop"
	// OpKill ends a service by SIGKILL and answers when the guest has seen it end; the guest then starts it again.
	OpKill Operation = "kill"
)

// Request is sent to the guest's control socket, one per connection, as JSON.
type Request struct {
	Operation Operation `json:"operation"`
	Service   string    `json:"service,omitempty"`
}

// Reply answers a request.
type Reply struct {
	Error    string          `json:"error,omitempty"`
	Services []ServiceStatus `json:"services,omitempty"`
}

// ServiceStatus is one service as the guest sees it.
type ServiceStatus struct {
	Name string `json:"name"`
	// PID inside the machine; 0 when it does not run.
	PID      int   `json:"pid,omitempty"`
	State    State `json:"state"`
	Restarts int   `json:"restarts,omitempty"`
}

// The files of a machine's folder that host and guest share.
const (
	ControlSocket = "control.sock"
	LogFolder     = "log"
	DiskFolder    = "disk" // a tmpfs that outlives a reboot
	RootFolder    = "root" // where the guest builds its root; empty as seen from the host
)
