package hook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-gpu/tessera/internal/host/cgroup"
)

// LimitMemory has the agent limit the GPU memory of the container's control group before its first process runs. It is a createRuntime hook: the process
// is in its group already, and the hook runs in the namespaces of the runtime. Each limited device of the container has the hook, with its own --device; the
// first of them does the work for all, because devices of one GPU have one limit together.
const LimitMemory = "limit-memory"

// ToolkitLimits is the argument of the hook with which NVIDIA's toolkit (1.20 and newer) limits the GPU memory of each container that has a GPU from it. It sets
// what variables in the container's environment demand, and nothing if there are none (cmd/nvidia-cdi-hook/apply-cuda-memory-limits of the toolkit).
const ToolkitLimits = "apply-cuda-memory-limits"

// toolkitVariables are those variables, with the sign of equality.
var toolkitVariables = []string{"NVIDIA_GPU_MEMORY_REQUEST=", "NVIDIA_GPU_MEMORY_LIMIT="}

const (
	// limitTimeout is how long the hook waits for an agent: one that is updated or restarted needs a few seconds.
	limitTimeout = 30 * time.Second
	// limitRetry is the interval of attempts meanwhile.
	limitRetry = 100 * time.Millisecond
	// maxLimitAnswer is the maximum size of an answer in bytes.
	maxLimitAnswer = 64 << 10
)

// LimitRequest is what the hook requests on the agent's socket, one JSON value per connection.
type LimitRequest struct {
	// Group is the path of the container's control group in the hierarchy of version 2.
	Group string `json:"group"`
	// Devices are the limited devices of the container.
	Devices []LimitedDevice `json:"devices"`
	// ToolkitLimits reports that the hook ToolkitLimits sets limits of the container too.
	ToolkitLimits bool `json:"toolkitLimits,omitempty"`
	// Namespace, Pod and Container name the container for metrics; empty if the runtime does not.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// LimitAnswer is the agent's answer.
type LimitAnswer struct {
	// Error is why the limits are not in effect; empty if they are.
	Error string `json:"error,omitempty"`
	// Retry reports that a later request can succeed.
	Retry bool `json:"retry,omitempty"`
}

// LimitedDevice is a device of a claim by its position in the allocation.
type LimitedDevice struct {
	Claim    string `json:"claim"`
	Position int    `json:"position"`
}

// String returns the value of --device.
func (d LimitedDevice) String() string { return d.Claim + "/" + strconv.Itoa(d.Position) }

// parseLimitedDevice is the inverse of LimitedDevice.String.
func parseLimitedDevice(text string) (LimitedDevice, error) {
	claim, position, _ := strings.Cut(text, "/")
	number, err := strconv.Atoi(position)
	if err != nil || claim == "" || number < 0 {
		return LimitedDevice{}, fmt.Errorf("device %q: must be the UID of a claim, a slash and a position", text)
	}
	return LimitedDevice{Claim: claim, Position: number}, nil
}

// LimitArgs returns the arguments of the hook for a device. sockets is the folder of the agents' sockets.
func LimitArgs(sockets string, d LimitedDevice) []string {
	return []string{Program, LimitMemory, "--sockets", sockets, "--device", d.String()}
}

// limitMemory runs the hook.
func limitMemory(own options, state containerState, proc string) error {
	config, err := state.config()
	if err != nil {
		return err
	}
	devices, first, err := config.limitedDevices()
	switch {
	case err != nil:
		return err
	case first == "":
		return errors.New("the container's configuration does not have this hook: its devices are unknown")
	case own.device != first:
		return nil
	}
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(state.PID), "cgroup"))
	if err != nil {
		return fmt.Errorf("find the container's control group: %w", err)
	}
	group, found := cgroup.Unified(string(text))
	if !found {
		return errors.New("the container's process has no control group of version 2")
	}
	request := LimitRequest{Group: group, Devices: devices, ToolkitLimits: config.toolkitLimits()}
	request.Namespace, request.Pod, request.Container = config.names()
	return requestLimits(own.sockets, request, time.Now().Add(limitTimeout))
}

// names returns the namespace and the names of pod and container from the annotations of containerd or CRI-O.
func (c containerConfig) names() (namespace, pod, container string) {
	return cmp.Or(c.Annotations["io.kubernetes.cri.sandbox-namespace"], c.Annotations["io.kubernetes.pod.namespace"]),
		cmp.Or(c.Annotations["io.kubernetes.cri.sandbox-name"], c.Annotations["io.kubernetes.pod.name"]),
		cmp.Or(c.Annotations["io.kubernetes.cri.container-name"], c.Annotations["io.kubernetes.container.name"])
}

// limitedDevices returns the devices of all hooks of this kind in the container's configuration, and the value of the first hook. Runtimes write what CDI
// specs add there; neither the image nor the pod can add a hook.
func (c containerConfig) limitedDevices() (devices []LimitedDevice, first string, err error) {
	for _, h := range c.Hooks.CreateRuntime {
		if len(h.Args) < 2 || h.Args[0] != Program || h.Args[1] != LimitMemory {
			continue
		}
		o, err := parse(LimitMemory, h.Args[2:], io.Discard)
		if err != nil {
			return nil, "", err
		}
		device, err := parseLimitedDevice(o.device)
		if err != nil {
			return nil, "", err
		}
		if len(devices) == 0 {
			first = o.device
		}
		if !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	return devices, first, nil
}

// toolkitLimits reports whether the hook of NVIDIA's toolkit sets limits of the container.
func (c containerConfig) toolkitLimits() bool {
	return slices.ContainsFunc(c.Hooks.CreateRuntime, func(h containerHook) bool { return slices.Contains(h.Args, ToolkitLimits) }) &&
		slices.ContainsFunc(c.Process.Env, func(variable string) bool {
			return slices.ContainsFunc(toolkitVariables, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
		})
}

// requestLimits requests the limits from the agents with a socket in the folder until one has set them, one has refused for good, or the deadline has
// passed. Two agents run during an update, and the socket of one that was killed stays until the next start.
func requestLimits(sockets string, request LimitRequest, deadline time.Time) error {
	var last error
	for {
		paths, err := filepath.Glob(filepath.Join(sockets, "*.sock"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			answer, err := queryAgent(path, request, deadline)
			if err == nil && answer.Error != "" {
				err = errors.New(answer.Error)
				if !answer.Retry {
					return err
				}
			}
			if err == nil {
				return nil
			}
			last = err
		}
		if time.Now().Add(limitRetry).After(deadline) {
			return errors.Join(fmt.Errorf("no agent of Tessera has limited the GPU memory of the container within %v: check the pod of tessera-node on this node", limitTimeout), last)
		}
		time.Sleep(limitRetry)
	}
}

// queryAgent sends one request.
func queryAgent(path string, request LimitRequest, deadline time.Time) (answer LimitAnswer, err error) {
	connection, err := net.DialTimeout("unix", path, time.Until(deadline))
	if err != nil {
		return LimitAnswer{}, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(deadline); err != nil {
		return LimitAnswer{}, err
	}
	if err := json.NewEncoder(connection).Encode(request); err != nil {
		return LimitAnswer{}, err
	}
	err = json.NewDecoder(io.LimitReader(connection, maxLimitAnswer)).Decode(&answer)
	return answer, err
}
