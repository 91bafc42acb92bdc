package bundle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/cmd/tessera/cluster"
)

// systemParts are Tessera's objects, logs, metrics and hardware information.
func (c *collector) systemParts() []part {
	client := c.cluster.Client
	folder := c.namespace
	everything := metav1.ListOptions{}
	return []part{
		{"Tessera pods", func(ctx context.Context) (int, error) {
			found, err := c.cluster.ListPods(ctx, folder)
			c.system = found
			var all []runtime.Object
			for i := range found {
				all = append(all, &found[i])
			}
			return c.yaml(path.Join(folder, "pods.yaml"), all, err)
		}},
		{"daemonsets", func(ctx context.Context) (int, error) {
			all, err := listItems(client.AppsV1().DaemonSets(folder).List(ctx, everything))
			return c.yaml(path.Join(folder, "daemonsets.yaml"), all, err)
		}},
		{"deployments", func(ctx context.Context) (int, error) {
			all, err := listItems(client.AppsV1().Deployments(folder).List(ctx, everything))
			return c.yaml(path.Join(folder, "deployments.yaml"), all, err)
		}},
		{"configmaps", func(ctx context.Context) (int, error) {
			all, err := listItems(client.CoreV1().ConfigMaps(folder).List(ctx, everything))
			notInjected := func(m metav1.Object) bool { return m.GetName() != "kube-root-ca.crt" }
			return c.yaml(path.Join(folder, "configmaps.yaml"), filterObjects(all, notInjected), err)
		}},
		{"logs", c.logs},
		{"agent metrics", func(ctx context.Context) (int, error) {
			return c.eachAgent(ctx, "metrics/%s.txt", func(ctx context.Context, p corev1.Pod) ([]byte, error) {
				return c.runner.Run(ctx, p, cluster.AgentContainer, cluster.AgentName, "metrics")
			})
		}},
		{"node hardware", func(ctx context.Context) (int, error) {
			return c.eachAgent(ctx, "gatherinfo/%s.json", func(ctx context.Context, p corev1.Pod) ([]byte, error) {
				return c.runner.Run(ctx, p, cluster.AgentContainer, append([]string{cluster.AgentName, "gatherinfo"}, agentArguments(p)...)...)
			})
		}},
	}
}

// agentArguments returns the arguments of the agent's container, which name its configuration.
func agentArguments(p corev1.Pod) []string {
	for _, container := range p.Spec.Containers {
		if container.Name == cluster.AgentContainer {
			return container.Args
		}
	}
	return nil
}

// eachAgent adds the response of each running agent as a file named after its node and pod.
func (c *collector) eachAgent(ctx context.Context, file string, request func(context.Context, corev1.Pod) ([]byte, error)) (int, error) {
	n := 0
	var errs []error
	for _, p := range c.system {
		if !cluster.IsRunningAgent(p) {
			continue
		}
		requestCtx, cancel := context.WithTimeout(ctx, cluster.AgentTimeout)
		data, err := request(requestCtx, p)
		cancel()
		if err == nil {
			err = c.archive.add(path.Join(c.namespace, fmt.Sprintf(file, p.Spec.NodeName+"-"+p.Name)), data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("agent %s on %s: %w", p.Name, p.Spec.NodeName, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// logs adds the log of every container of Tessera's pods and, after a restart, that of the previous
// container.
func (c *collector) logs(ctx context.Context) (int, error) {
	n := 0
	var errs []error
	for _, p := range c.system {
		for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for _, previous := range []bool{false, true} {
				if previous && restarts(p, container.Name) == 0 {
					continue
				}
				if err := c.log(ctx, p, &corev1.PodLogOptions{Container: container.Name, Previous: previous, TailLines: &c.logLines}); err != nil {
					errs = append(errs, fmt.Errorf("container %s of %s: %w", container.Name, p.Name, err))
					continue
				}
				n++
			}
		}
	}
	return n, errors.Join(errs...)
}

// log adds the log of one container.
func (c *collector) log(ctx context.Context, p corev1.Pod, options *corev1.PodLogOptions) error {
	data, err := c.cluster.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, options).DoRaw(ctx)
	if err != nil {
		return err
	}
	name := options.Container + ".log"
	if options.Previous {
		name = options.Container + ".previous.log"
	}
	return c.archive.add(path.Join(c.namespace, "logs", p.Name, name), data)
}

// restarts returns the restart count of a pod's container.
func restarts(p corev1.Pod, container string) int32 {
	for _, status := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if status.Name == container {
			return status.RestartCount
		}
	}
	return 0
}
