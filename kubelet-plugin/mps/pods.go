package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// How often the agent looks at what it waits for: at the folder, and at the pod.
const (
	folderPeriod = 25 * time.Millisecond
	podPeriod    = 500 * time.Millisecond
)

// Config says where daemons run.
type Config struct {
	// Node is the Kubernetes node, Client the API server's.
	Node   string
	Client kubernetes.Interface
	// Namespace and Pod are the agent's own. Daemons run in the namespace, from the agent's image.
	// Without a pod the agent cannot run daemons.
	Namespace, Pod string
	// Dir is the folder of the daemons' folders, under the same path on the host, in the agent and in the
	// daemons: /run/tessera/mps. It must not outlive a boot.
	Dir string
	// KubeletPods is the host folder of kubelet's pods: /var/lib/kubelet/pods.
	KubeletPods string
	// Needs are paths that the supervisor sees as the agent does: what is mounted there, or below, is
	// mounted into the daemons' pods, too.
	Needs []string
	// Args are arguments that the agent's program takes before its verb.
	Args []string
}

// Pods runs every MPS control daemon of the node in a pod of its own. Its methods are safe for concurrent
// use, by several agents, too; calls for one daemon are serialized by the caller.
type Pods struct {
	Config
}

var _ prepare.Daemons = (*Pods)(nil)

// New returns the daemons of the node. It remembers nothing: pods and folders are the truth.
func New(c Config) *Pods { return &Pods{Config: c} }

// Ensure makes the daemon run as described and returns when its supervisor says that exactly this is in
// effect. A pod that is missing is made, one that ended is replaced, one that is being deleted is waited
// for. A daemon that serves already is found so without the API server. After an error the daemon may
// exist; the next call carries on, and Release ends it. The caller says which daemon an error is about.
func (p *Pods) Ensure(ctx context.Context, d prepare.Daemon) (prepare.DaemonFolders, error) {
	c := configuration(d)
	err := c.validate()
	if err == nil {
		err = p.configure(c)
	}
	if err != nil {
		return prepare.DaemonFolders{}, err
	}
	pod, err := p.waitUntilServing(ctx, c)
	if err != nil {
		return prepare.DaemonFolders{}, err
	}
	return prepare.DaemonFolders{
		Pipe: filepath.Join(p.folder(d.Name), pipeName),
		Shm:  filepath.Join(p.KubeletPods, pod, "volumes", "kubernetes.io~empty-dir", shmVolume),
	}, nil
}

// configure writes the configuration unless it is there already.
func (p *Pods) configure(c configuration) error {
	folder := p.folder(c.Name)
	// Servers may run as somebody else and must be able to enter.
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if there, err := read[configuration](folder, configName); err == nil && there == c {
		return nil
	}
	return write(folder, configName, c)
}

// waitUntilServing returns the UID of the pod whose daemon serves under the configuration, once there is one.
func (p *Pods) waitUntilServing(ctx context.Context, c configuration) (string, error) {
	s, serves, err := p.observe(c.Name)
	var live podView
	var next time.Time
	if serves { // its supervisor follows the configuration by itself
		next = time.Now().Add(podPeriod)
	}
	for err == nil {
		if serves && s.Config == c && live.allows(s) {
			return s.Pod, nil
		}
		if now := time.Now(); now.After(next) {
			if live, err = p.checkPod(ctx, c); err != nil {
				break
			}
			next = now.Add(podPeriod)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w", describeWait(live, s, serves, c), context.Cause(ctx))
		case <-time.After(folderPeriod):
		}
		s, serves, err = p.observe(c.Name)
	}
	return "", err
}

// observe returns what the supervisor says, and whether a daemon serves so. The lock is asked first: it
// is taken after the state was written.
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

// podView is what a look at a daemon's pod showed.
type podView struct {
	// uid is the pod's; empty as long as it is unknown.
	uid types.UID
	// waitReason says what a daemon that does not serve waits for.
	waitReason string
}

// replacedUID stands for the UID of a pod that cannot serve any more.
const replacedUID = types.UID("none")

// allows reports whether the state can be that of the pod.
func (v podView) allows(s state) bool { return v.uid == "" || string(v.uid) == s.Pod }

// checkPod looks at the daemon's pod and makes or replaces it if need be. An API server that does not answer
// is waited for, one that refuses is an error.
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
		return p.replace(ctx, pod, "it was created by another version of the agent and does not run")
	}
	return podView{uid: pod.UID, waitReason: describePod(pod)}, nil
}

// create makes the pod. Another agent may be faster: then the next look shows its pod.
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

// replace deletes the pod; the look after it is gone makes another.
func (p *Pods) replace(ctx context.Context, pod *corev1.Pod, why string) (podView, error) {
	klog.FromContext(ctx).Info("Replacing the pod of an MPS daemon", "pod", klog.KObj(pod), "reason", why)
	return podView{uid: replacedUID, waitReason: fmt.Sprintf("pod %s is replaced: %s", pod.Name, why)}, p.deletePodByUID(ctx, pod)
}

// outdated reports whether the pod would be made otherwise now and no process of it lives. A pod whose
// supervisor runs is left alone, whatever made it: clients depend on it.
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

// deletePodByUID deletes exactly this pod.
func (p *Pods) deletePodByUID(ctx context.Context, pod *corev1.Pod) error {
	err := p.pods().Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}

// Release ends the daemon. It first takes the configuration away, at which the supervisor ends the
// daemon at once, then the pod, and waits until the kernel says that no process of it is left. The pod
// may still be listed for a while as one that ends.
func (p *Pods) Release(ctx context.Context, name string) error {
	if err := p.release(ctx, name); err != nil {
		return fmt.Errorf("end MPS daemon %s: %w", name, err)
	}
	return nil
}

func (p *Pods) release(ctx context.Context, name string) error {
	folder := p.folder(name)
	if err := os.Remove(filepath.Join(folder, configName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var next time.Time
	for {
		waits := fmt.Sprintf("processes of it still hold the lock in %s", folder)
		if now := time.Now(); now.After(next) {
			// Repeated: an agent that creates the pod at this moment must not bring it back.
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
			return os.RemoveAll(folder)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", waits, context.Cause(ctx))
		case <-time.After(folderPeriod):
		}
	}
}

// deletePod has the daemon's pod deleted, if there is one.
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

// List returns the daemons of the node with Name, GPU and ClaimUID, by name: those that have a pod, and
// those that have only a folder left.
func (p *Pods) List(ctx context.Context) ([]prepare.Daemon, error) {
	pods, err := p.pods().List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{
		MatchLabels: map[string]string{nameLabel: daemonName, nodeLabel: labelValue(p.Node)},
	})})
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	var daemons []prepare.Daemon
	for _, pod := range pods.Items {
		daemons = append(daemons, prepare.Daemon{Name: pod.Labels[instanceLabel], GPU: pod.Labels[gpuLabel], ClaimUID: pod.Labels[claimLabel]})
	}
	states, err := p.States()
	if err != nil {
		return nil, err
	}
	for _, s := range states {
		daemons = append(daemons, prepare.Daemon{Name: s.Name, GPU: s.GPU, ClaimUID: s.ClaimUID})
	}
	slices.SortStableFunc(daemons, func(a, b prepare.Daemon) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(daemons, func(a, b prepare.Daemon) bool { return a.Name == b.Name }), nil
}

// States returns what the supervisors of the node tell about their daemons, by name. It asks nobody but
// the folders and may be called often.
func (p *Pods) States() ([]State, error) {
	entries, err := os.ReadDir(p.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list MPS daemons: %w", err)
	}
	var states []State
	for _, entry := range entries {
		c, configured := read[configuration](p.folder(entry.Name()), configName)
		s, serves, err := p.observe(entry.Name())
		if err != nil {
			klog.Background().V(2).Info("The state of an MPS daemon cannot be read", "name", entry.Name(), "err", err)
		}
		if configured != nil {
			if c = s.Config; c.Name == "" {
				continue // nobody has ever asked for it
			}
		}
		states = append(states, State{
			Name: entry.Name(), GPU: c.GPU, ClaimUID: c.ClaimUID, Serving: serves, Since: s.Since,
			Restarts: s.Restarts, LastError: s.LastError, LastErrorAt: s.LastErrorAt,
		})
	}
	return states, nil
}

func (p *Pods) folder(name string) string { return filepath.Join(p.Dir, name) }
