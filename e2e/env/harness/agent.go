package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Agent is one running agent of a host.
type Agent struct {
	*Process
	host *Host
	// UID is the UID of the agent's pod.
	UID string
}

// Launch configures the start of an agent.
type Launch struct {
	// Program is the path of tessera-node, Hook that of tessera-hook.
	Program, Hook string
	// UID is the UID of the pod.
	UID string
	// Args are additional arguments.
	Args []string
	// Environment has name=value pairs in addition to the caller's environment.
	Environment []string
	// Verbosity is the log verbosity.
	Verbosity int
}

// Start starts an agent and returns immediately.
func (h *Host) Start(l Launch) (*Agent, error) {
	a := &Agent{host: h, UID: l.UID}
	cmd := exec.Command(l.Program, "--config="+h.Config(), "--kubeconfig="+h.Kubeconfig, "--node-name="+h.Name, "--pod-uid="+l.UID,
		"--plugin-dir="+h.Records, "--registry-dir="+h.Registry(), "--cdi-dir="+h.CDI(), "--hook="+l.Hook,
		"--pod-resources="+h.PodResources(), "--kubelet-state="+h.KubeletState(), "--mps-dir="+h.MPS(),
		"--pod-namespace="+metav1.NamespaceDefault, "--pod-name="+h.agentPod(), "--metrics-address=0", "--socket="+a.Socket(), fmt.Sprintf("-v=%d", l.Verbosity))
	cmd.Args = append(cmd.Args, l.Args...)
	cmd.Env = slices.Concat(os.Environ(), []string{h.deviceNodes()}, l.Environment)
	var err error
	a.Process, err = Start(h.Log(), cmd)
	return a, err
}

// Registration returns the socket at which kubelet finds the agent.
func (a *Agent) Registration() string {
	return filepath.Join(a.host.Registry(), fmt.Sprintf("%s-%s-reg.sock", Driver, a.UID))
}

// Socket returns the socket of the agent's HTTP endpoint.
func (a *Agent) Socket() string { return filepath.Join(a.host.Dir, a.UID+".http") }

// Request sends a request to the agent's HTTP endpoint.
func (a *Agent) Request(ctx context.Context, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", a.Socket())
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(request)
}

// Ready returns an error if the agent is not ready.
func (a *Agent) Ready(ctx context.Context) error {
	if err := a.Alive(); err != nil {
		return err
	}
	response, err := a.Request(ctx, "/readyz")
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing was read
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
