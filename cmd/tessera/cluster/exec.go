package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// The agents' pods have the label LabelName with the value AgentName, and the agent's program, of the same name, in the container AgentContainer.
const (
	LabelName      = "app.kubernetes.io/name"
	AgentName      = "tessera-node"
	AgentContainer = "agent"
)

// AgentTimeout limits the request to one agent.
const AgentTimeout = 30 * time.Second

// IsRunningAgent reports whether the pod is an agent's and runs.
func IsRunningAgent(p corev1.Pod) bool {
	return p.Labels[LabelName] == AgentName && p.Status.Phase == corev1.PodRunning
}

// Runner runs a command in a container of a pod and returns its standard output.
type Runner interface {
	Run(ctx context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error)
}

// podExec runs commands through the API server (pods/exec).
type podExec struct{ cluster *Cluster }

// Runner returns the runner of the cluster. The error of a failed command contains its standard error.
func (c *Cluster) Runner() Runner { return podExec{c} }

// Run returns the command's standard output.
func (e podExec) Run(ctx context.Context, pod corev1.Pod, container string, command ...string) ([]byte, error) {
	if e.cluster.Config == nil {
		return nil, errors.New("commands need a connection to the API server")
	}
	url := e.cluster.Client.CoreV1().RESTClient().Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(e.cluster.Config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &stderr}); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out.Bytes(), nil
}
