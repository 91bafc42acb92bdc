package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// agentPod returns the name of the pod that owns the MPS daemon pods which agents of the host create.
func (h *Host) agentPod() string { return h.Name + "-agent" }

// MPS returns the parent folder of the MPS daemons' folders.
func (h *Host) MPS() string { return filepath.Join(h.Dir, "mps") }

// Daemons replaces kubelet for the pods of MPS daemons on a host: it runs their supervisors.
type Daemons struct {
	host    *Host
	program string
	end     context.CancelFunc
	ended   chan struct{}

	mutex sync.Mutex
	// running has the supervisors by pod UID.
	running map[types.UID]*Process
}

// RunDaemons creates the pod of the host's agents, which they need to run MPS daemons, and runs the daemons' pods with
// the agent's program until Stop.
func (h *Host) RunDaemons(ctx context.Context, program string) (*Daemons, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.agentPod()},
		Spec:       corev1.PodSpec{NodeName: h.Name, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}
	if _, err := h.plane.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make the agents' pod of %s: %w", h.Name, err)
	}
	ctx, end := context.WithCancel(ctx)
	d := &Daemons{host: h, program: program, end: end, ended: make(chan struct{}), running: map[types.UID]*Process{}}
	go d.run(ctx)
	return d, nil
}

// Stop ends every supervisor, as a shutdown of the machine does.
func (d *Daemons) Stop() {
	d.end()
	<-d.ended
}

// Kill crashes every supervisor. They are restarted.
func (d *Daemons) Kill() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, process := range d.running {
		process.Kill()
	}
}

// daemonPause is the interval at which the pods are listed.
const daemonPause = 20 * time.Millisecond

func (d *Daemons) run(ctx context.Context) {
	defer close(d.ended)
	defer func() {
		for _, process := range d.running {
			process.Kill()
		}
	}()
	tick := time.NewTicker(daemonPause)
	defer tick.Stop()
	for {
		if err := d.sync(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "MPS daemons of %s: %v\n", d.host.Name, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sync starts and stops supervisors according to the pods.
func (d *Daemons) sync(ctx context.Context) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	pods, err := d.host.plane.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=tessera-mps", FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.host.Name).String(),
	})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		process, started := d.running[pod.UID]
		switch {
		case pod.DeletionTimestamp != nil:
			err = errors.Join(err, d.remove(ctx, pod, process))
		case !started || process.Alive() != nil:
			err = errors.Join(err, d.start(pod))
		}
	}
	return err
}

func (d *Daemons) start(pod corev1.Pod) error {
	if err := os.MkdirAll(d.memory(pod.UID), 0o755); err != nil {
		return err
	}
	cmd := exec.Command(d.program, pod.Spec.Containers[0].Args...)
	cmd.Env = append(os.Environ(), d.host.deviceNodes(), "POD_UID="+string(pod.UID))
	process, err := Start(d.host.Log(), cmd)
	if err == nil {
		d.running[pod.UID] = process
	}
	return err
}

// remove ends the supervisor and deletes the pod.
func (d *Daemons) remove(ctx context.Context, pod corev1.Pod, process *Process) error {
	if process != nil {
		if err := process.Alive(); err == nil {
			_ = process.Terminate() // the supervisor may have been killed already
		}
		delete(d.running, pod.UID)
	}
	if err := os.RemoveAll(d.memory(pod.UID)); err != nil {
		return err
	}
	now := int64(0)
	err := d.host.plane.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// memory returns the path at which kubelet mounts the memory that a daemon shares with its clients.
func (d *Daemons) memory(pod types.UID) string {
	return filepath.Join(filepath.Dir(d.host.Records), "pods", string(pod), "volumes", "kubernetes.io~empty-dir", "shm")
}
