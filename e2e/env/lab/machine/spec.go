// Package machine runs the computers of a lab. Each has its own root folder, processes, host name and network, and ends
// as a whole. Package guest is the part that runs inside; both communicate with the types of this package.
package machine

import (
	"io/fs"
	"time"
)

// Spec is the complete configuration of the guest. It is passed once, at boot.
type Spec struct {
	// Name is the host name.
	Name string `json:"name"`
	// Mounts are mounted into the new root, in order, after /proc, /sys, /dev, /run and /tmp.
	Mounts []Mount `json:"mounts,omitempty"`
	// Files are written into the new root at every boot.
	Files []File `json:"files,omitempty"`
	// Masks cover files that a program would read or write outside the machine, such as kernel settings: writes stay
	// inside the machine and are lost at the next boot.
	Masks []File `json:"masks,omitempty"`
	// Settings are written to existing files of the new root, in order: kernel settings of the machine's own network.
	Settings []File `json:"settings,omitempty"`
	// Path is the PATH of every service.
	Path string `json:"path"`
	// Services are in the order of their start.
	Services []Service `json:"services,omitempty"`
}

// Mount binds a folder or file of the host into the machine.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// File is a small file with its content.
type File struct {
	Path    string      `json:"path"`
	Content []byte      `json:"content"`
	Mode    fs.FileMode `json:"mode,omitempty"`
}

// Service is one program that the guest keeps running.
type Service struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Needs names services that must be ready before this one starts for the first time.
	Needs []string `json:"needs,omitempty"`
	// Ready determines when services that need this one may start.
	Ready Probe `json:"ready"`
	// Grace is the time to stop before the service is killed. DefaultGrace if zero.
	Grace time.Duration `json:"grace,omitempty"`
}

// DefaultGrace is the default of Service.Grace.
const DefaultGrace = 10 * time.Second

// Probe determines whether a service is ready. Exactly one field is set.
type Probe struct {
	// URL must return status 200. The certificate is not verified, since the guest connects to itself.
	URL string `json:"url,omitempty"`
	// Socket must accept a connection.
	Socket string `json:"socket,omitempty"`
	// Exit means that the service is ready after the program has exited with status 0. It is not restarted then.
	Exit bool `json:"exit,omitempty"`
}

// State is the state of a service.
type State string

// The states of a service.
const (
	Waiting  State = "waiting"  // for the services it needs
	Starting State = "starting" // runs, not ready yet
	Ready    State = "ready"
	Failed   State = "failed"  // exited and is about to be restarted
	Stopped  State = "stopped" // by request
)

// Operation is the operation of a request.
type Operation string

// The operations of a guest.
const (
	// OpStatus returns the state of every service immediately.
	OpStatus Operation = "status"
	// OpWait returns when every service that was not stopped is ready.
	OpWait Operation = "wait"
	// OpStart starts a stopped service and returns when it is ready.
	OpStart Operation = "start"
	// OpStop stops a service with SIGTERM, and with SIGKILL after its grace period, and returns when it has exited. Its
	// children keep running, as with systemd's KillMode=process.
	OpStop Operation = "stop"
	// OpKill kills a service with SIGKILL and returns when it has exited. The guest then restarts it.
	OpKill Operation = "kill"
)

// Request is sent to the guest's control socket as JSON, one per connection.
type Request struct {
	Operation Operation `json:"operation"`
	Service   string    `json:"service,omitempty"`
}

// Reply is the answer to a request.
type Reply struct {
	Error    string          `json:"error,omitempty"`
	Services []ServiceStatus `json:"services,omitempty"`
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name string `json:"name"`
	// PID is the process ID inside the machine, 0 if the service does not run.
	PID      int   `json:"pid,omitempty"`
	State    State `json:"state"`
	Restarts int   `json:"restarts,omitempty"`
}

// The files of a machine's folder that host and guest share.
const (
	ControlSocket = "control.sock"
	LogFolder     = "log"
	DiskFolder    = "disk" // a tmpfs that persists across reboots
	RootFolder    = "root" // where the guest builds its root; empty as seen from the host
)
