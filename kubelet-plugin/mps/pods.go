package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/internal/host/disk"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Polling intervals of the agent: of the folder, and of the pod.
const (
	folderPeriod = 25 * time.Millisecond
	podPeriod    = 500 * time.Millisecond
)

// Config has the locations and the clients with which daemons run.
type Config struct {
	// Node is the name of the Kubernetes node.
	Node   string
	Client kubernetes.Interface
	// Namespace and Pod identify the agent's own pod. Daemons run in the namespace with the agent's image. Without a pod
	// the agent cannot run daemons.
	Namespace, Pod string
	// Dir is the parent of the daemons' folders, with the same path on the host, in the agent and in the daemons:
	// /run/tessera/mps. It must not survive a boot.
	Dir string
	// KubeletPods is the host folder of kubelet's pods: /var/lib/kubelet/pods.
	KubeletPods string
	// Needs are paths that the supervisor requires as the agent has them: a volume mounted there, or below, is mounted
	// into the daemons' pods too.
	Needs []string
	// Args are arguments of the agent's program that precede its verb.
	Args []string
	// Files is the file system of Dir; nil means the host's.
	Files disk.FileSystem
}

// Pods runs every MPS control daemon of the node in its own pod. It is safe for concurrent use, also by several agents;
// the caller serializes calls for one daemon.
type Pods struct {
	Config

	mu sync.Mutex
	// listed are the daemons of the pods that the API server last listed, less those that were released since; until is
	// when it is to be called again.
	listed []prepare.Daemon
	until  time.Time
}

var _ prepare.Daemons = (*Pods)(nil)

// New returns the daemons of the node. Pods and folders are their only source.
func New(c Config) *Pods { return &Pods{Config: c} }

// Ensure makes the daemon run with the configuration and returns when its supervisor reports exactly this configuration
// in effect. It creates a missing pod, replaces one that ended, and waits for the end of one that is being deleted. A
// daemon that already serves needs no call to the API server. After an error the daemon may exist; the next call
// continues, and Release ends it. Errors do not name the daemon; the caller does.
func (p *Pods) Ensure(ctx context.Context, d prepare.Daemon) (prepare.DaemonFolders, error) {
	c := configuration(d)
	err := c.validate()
	if err == nil {
		err = p.configure(c)
	}
	if err != nil {
		return prepare.DaemonFolders{}, err
	}
	s, err := p.waitUntilServing(ctx, c)
	if err != nil {
		return prepare.DaemonFolders{}, err
	}
	folders := prepare.DaemonFolders{Pipe: filepath.Join(p.folder(d.Name), pipeName), Shm: p.volume(s.Pod, sharedMemory)}
	if s.Volumes {
		folders.Pipe = p.volume(s.Pod, pipes)
	}
	if s.Protocol == version3 {
		folders.Namespaces = filepath.Join(folders.Pipe, claimsName)
	}
	return folders, nil
}

// Narrow changes the configuration of the daemon, which its supervisor applies. A daemon without a configuration gets none: it does not run.
func (p *Pods) Narrow(_ context.Context, d prepare.Daemon) error {
	if _, err := read[configuration](p.folder(d.Name), configName); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c := configuration(d)
	if err := c.validate(); err != nil {
		return err
	}
	return p.configure(c)
}

// volume returns the host path at which kubelet mounts the volume of a pod.
func (p *Pods) volume(pod string, v volume) string {
	return filepath.Join(p.KubeletPods, pod, "volumes", "kubernetes.io~empty-dir", v.name)
}

// configure writes the configuration unless the file already has it.
func (p *Pods) configure(c configuration) error {
	folder := p.folder(c.Name)
	// Servers may run as another user and must be able to enter the folder.
	if err := disk.MakeFolder(p.Files, folder, 0o755); err != nil {
		return err
	}
	if there, err := read[configuration](folder, configName); err == nil && reflect.DeepEqual(there, c) {
		return nil
	}
	return write(p.Files, folder, configName, c)
}

// waitUntilServing returns the state of a daemon that serves with the configuration, once there is one.
func (p *Pods) waitUntilServing(ctx context.Context, c configuration) (state, error) {
	s, serves, err := p.observe(c.Name)
	var live podView
	var next time.Time
	if serves { // its supervisor applies the configuration without the agent
		next = time.Now().Add(podPeriod)
	}
	for err == nil {
		if serves && s.Config.equals(c, s.Protocol) && live.allows(s) {
			return s, nil
		}
		if now := time.Now(); now.After(next) {
			if live, err = p.checkPod(ctx, c); err != nil {
				break
			}
			next = now.Add(podPeriod)
		}
		select {
		case <-ctx.Done():
			return state{}, fmt.Errorf("%s: %w", describeWait(live, s, serves, c), context.Cause(ctx))
		case <-time.After(folderPeriod):
		}
		s, serves, err = p.observe(c.Name)
	}
	return state{}, err
}

// observe returns the supervisor's state and whether the daemon serves. The lock is checked before the state is read,
// because the supervisor locks it after it has written the state.
func (p *Pods) observe(name string) (state, bool, error) {
	serves, err := isLocked(p.folder(name), servingByte)
	if err != nil {
		return state{}, false, err
	}
	s, err := read[state](p.folder(name), stateName)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, false, nil
	}
	return s, serves && s.Serving, err
}

// podView is the result of a check of a daemon's pod.
type podView struct {
	// uid is the pod's UID; empty while it is unknown.
	uid types.UID
	// waitReason describes why the daemon does not serve yet.
	waitReason string
}

// replacedUID replaces the UID of a pod that cannot serve any more.
const replacedUID = types.UID("none")

// allows reports whether the state can be the pod's.
func (v podView) allows(s state) bool { return v.uid == "" || string(v.uid) == s.Pod }

// checkPod checks the daemon's pod, and creates or replaces it if needed. Errors of the API server are retried, except
// those that reject the request.
func (p *Pods) checkPod(ctx context.Context, c configuration) (podView, error) {
	view, err := p.ensurePod(ctx, c)
	switch {
	case err == nil:
		return view, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), errors.Is(err, errNoPod):
		return podView{}, err
	}
	return podView{waitReason: err.Error()}, nil
}

func (p *Pods) ensurePod(ctx context.Context, c configuration) (podView, error) {
	name := p.podName(c.Name)
	pod, err := p.pods().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return p.create(ctx, c)
	case err != nil:
		return podView{}, fmt.Errorf("read pod %s: %w", name, err)
	case pod.DeletionTimestamp != nil:
		return podView{uid: replacedUID, waitReason: fmt.Sprintf("pod %s is still being deleted", name)}, nil
	case ended(pod):
		return p.replace(ctx, pod, describePod(pod))
	}
	outdated, err := p.outdated(ctx, pod, c)
	switch {
	case err != nil:
		return podView{}, err
	case outdated:
		return p.replace(ctx, pod, "it was created by another version of the agent and is not running")
	}
	return podView{uid: pod.UID, waitReason: describePod(pod)}, nil
}

// create creates the pod. If another agent has created it meanwhile, the next check returns that pod.
func (p *Pods) create(ctx context.Context, c configuration) (podView, error) {
	wanted, err := p.pod(ctx, c)
	if err != nil {
		return podView{}, err
	}
	pod, err := p.pods().Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return podView{uid: replacedUID, waitReason: fmt.Sprintf("pod %s was created by another agent", wanted.Name)}, nil
	case err != nil:
		return podView{}, fmt.Errorf("create pod %s: %w", wanted.Name, err)
	}
	klog.FromContext(ctx).Info("Created the pod of an MPS daemon", "pod", klog.KObj(pod), "gpu", c.GPU, "claimUID", c.ClaimUID)
	return podView{uid: pod.UID, waitReason: describePod(pod)}, nil
}

// replace deletes the pod; a check after its end creates another.
func (p *Pods) replace(ctx context.Context, pod *corev1.Pod, why string) (podView, error) {
	klog.FromContext(ctx).Info("Replacing the pod of an MPS daemon", "pod", klog.KObj(pod), "reason", why)
	return podView{uid: replacedUID, waitReason: fmt.Sprintf("pod %s is replaced: %s", pod.Name, why)}, p.deletePodByUID(ctx, pod)
}

// outdated reports whether the pod differs from the one that would be created now and none of its processes lives. A pod
// whose supervisor runs is never outdated, because clients depend on it.
func (p *Pods) outdated(ctx context.Context, pod *corev1.Pod, c configuration) (bool, error) {
	runs, err := isLocked(p.folder(c.Name), aliveByte)
	if err != nil || runs {
		return false, err
	}
	wanted, err := p.pod(ctx, c)
	if err != nil {
		return false, err
	}
	return pod.Annotations[templateAnnotation] != wanted.Annotations[templateAnnotation], nil
}

// deletePodByUID deletes exactly this pod. A pod that no longer exists is not an error.
func (p *Pods) deletePodByUID(ctx context.Context, pod *corev1.Pod) error {
	err := p.pods().Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// Release ends the daemon. It removes the configuration, at which the supervisor ends the daemon at once, deletes the
// pod, and waits until the lock shows that no process of the daemon lives. The API server may list the pod as
// terminating for a while longer.
func (p *Pods) Release(ctx context.Context, name string) error {
	if err := p.release(ctx, name); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = slices.DeleteFunc(p.listed, func(d prepare.Daemon) bool { return d.Name == name })
	return nil
}

func (p *Pods) release(ctx context.Context, name string) error {
	folder := p.folder(name)
	if err := disk.RemoveIfExists(p.Files, filepath.Join(folder, configName)); err != nil {
		return err
	}
	var next time.Time
	for {
		waits := fmt.Sprintf("its processes still hold the lock in %s", folder)
		if now := time.Now(); now.After(next) {
			// Repeated, so that an agent that creates the pod concurrently does not keep it.
			if err := p.deletePod(ctx, name); err != nil {
				return err
			}
			next = now.Add(podPeriod)
		}
		runs, err := isLocked(folder, aliveByte)
		switch {
		case err != nil:
			return err
		case !runs:
			return disk.RemoveAll(p.Files, folder)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", waits, context.Cause(ctx))
		case <-time.After(folderPeriod):
		}
	}
}

// deletePod deletes the daemon's pod, if there is one.
func (p *Pods) deletePod(ctx context.Context, name string) error {
	pod, err := p.pods().Get(ctx, p.podName(name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s: %w", p.podName(name), err)
	case pod.DeletionTimestamp != nil:
		return nil
	}
	return p.deletePodByUID(ctx, pod)
}
