package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/internal/host/lock"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	namespace = "tessera-system"
	node      = "node1"
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// cluster is an API server and the kubelet of one node. Its supervisors are goroutines that take the lock and report
// every configuration as in effect at once.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	dir    string

	mu sync.Mutex
	// image is the only one that kubelet can pull; empty means all images.
	image string
	// slow keeps kubelet from ending pods that are deleted, away from any action.
	slow, away bool
	// down makes every request to the API server fail.
	down    bool
	made    int
	deleted int
	locks   map[types.UID]*os.File
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: filepath.Join(t.TempDir(), "mps"), locks: map[types.UID]*os.File{}}
	c.client = fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid"}},
		agentPod("agent-1", "registry/tessera/node:1"),
	)
	c.client.PrependReactor("*", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.down {
			return true, nil, errors.New("connection refused")
		}
		switch action := action.(type) {
		case k8stesting.CreateActionImpl:
			pod, ok := action.Object.(*corev1.Pod)
			if !ok {
				return true, nil, fmt.Errorf("creates a %T", action.Object)
			}
			c.made++
			pod.UID = types.UID(fmt.Sprintf("uid-%d", c.made))
		case k8stesting.DeleteActionImpl:
			return true, nil, c.delete(action)
		}
		return false, nil, nil
	})
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(done)
		rounds := time.NewTicker(2 * time.Millisecond)
		defer rounds.Stop()
		for ctx.Err() == nil {
			c.sync()
			<-rounds.C
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// agentPod is the pod of the DaemonSet, as the API server returns it.
func agentPod(name, image string) *corev1.Pod {
	host := corev1.MountPropagationHostToContainer
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: "tessera-node", PriorityClassName: "system-node-critical",
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
			Containers: []corev1.Container{
				{Name: "mesh", Image: "mesh"},
				{
					Name: "agent", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/etc/tessera-termination",
					VolumeMounts: []corev1.VolumeMount{
						{Name: "config", MountPath: "/etc/tessera", ReadOnly: true},
						{Name: "host", MountPath: "/host", MountPropagation: &host},
						{Name: "dev", MountPath: "/dev", MountPropagation: &host},
						{Name: "plugins", MountPath: "/var/lib/kubelet/plugins"},
						{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
					},
				},
			},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tessera-node-config"}}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev"}}},
				{Name: "plugins", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins"}}},
				{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			},
		},
	}
}

// delete does what the API server does for a pod on a node: it only sets the deletion timestamp.
func (c *cluster) delete(action k8stesting.DeleteActionImpl) error {
	object, err := c.client.Tracker().Get(pods, namespace, action.Name)
	if err != nil {
		return err
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("deletes a %T", object)
	}
	if want := action.DeleteOptions.Preconditions; want != nil && *want.UID != pod.UID {
		return apierrors.NewConflict(pods.GroupResource(), action.Name, errors.New("another UID"))
	}
	pod = pod.DeepCopy()
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	c.deleted++
	return c.client.Tracker().Update(pods, pod, namespace)
}

// sync is one round of kubelet and of every supervisor on the node.
func (c *cluster) sync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return
	}
	for _, pod := range c.daemonPods() {
		name := pod.Labels["app.kubernetes.io/instance"]
		folder := filepath.Join(c.dir, name)
		switch {
		case pod.DeletionTimestamp != nil && !c.slow:
			c.end(pod.UID)
			_ = c.client.Tracker().Delete(pods, namespace, pod.Name)
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case c.image != "" && pod.Spec.Containers[0].Image != c.image:
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}},
			}}
			_ = c.client.Tracker().Update(pods, &pod, namespace)
		default:
			c.supervise(folder, pod.UID)
		}
	}
}

func (c *cluster) daemonPods() []corev1.Pod {
	object, err := c.client.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
	if err != nil {
		c.t.Error(err)
		return nil
	}
	list, ok := object.(*corev1.PodList)
	if !ok {
		c.t.Errorf("lists a %T", object)
		return nil
	}
	var daemons []corev1.Pod
	for _, pod := range list.Items {
		if pod.Labels["app.kubernetes.io/name"] == "tessera-mps" {
			daemons = append(daemons, *pod.DeepCopy())
		}
	}
	return daemons
}

// supervise is one poll of a supervisor.
func (c *cluster) supervise(folder string, uid types.UID) {
	wanted, err := read[configuration](folder, configName)
	if err != nil {
		return
	}
	file, runs := c.locks[uid]
	if !runs {
		if file, err = os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return
		}
		if lock.Try(file, lock.Exclusive, lock.Byte(aliveByte)) != nil {
			_ = file.Close()
			return
		}
		c.locks[uid] = file
	}
	if s, err := read[state](folder, stateName); err == nil && reflect.DeepEqual(s.Config, wanted) && s.Pod == string(uid) {
		return
	}
	if err := write(nil, folder, stateName, state{Config: wanted, Serving: true, Pod: string(uid)}); err == nil {
		_ = lock.Try(file, lock.Exclusive, lock.Byte(servingByte))
	}
}

// end ends every process of the pod.
func (c *cluster) end(uid types.UID) {
	if file, ok := c.locks[uid]; ok {
		_ = file.Close()
		delete(c.locks, uid)
	}
}

func (c *cluster) change(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) agent(pod string) *Pods {
	return New(Config{
		Node: node, Client: c.client, Namespace: namespace, Pod: pod, Dir: c.dir, KubeletPods: "/var/lib/kubelet/pods",
		Needs: []string{"/host", "/dev", "/etc/tessera/node.yaml"}, Args: []string{"--config=/etc/tessera/node.yaml"},
	})
}

// only returns the daemon's only pod.
func (c *cluster) only() corev1.Pod {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.daemonPods()
	if len(list) != 1 {
		c.t.Fatalf("%d pods of daemons, want one", len(list))
	}
	return list[0]
}

func (c *cluster) runs(name string) bool {
	c.t.Helper()
	runs, err := isLocked(filepath.Join(c.dir, name), aliveByte)
	if err != nil {
		c.t.Fatal(err)
	}
	return runs
}

var shared = prepare.Daemon{Name: "mps-gpu-0000-3b-00-0", GPU: "gpu-0000-3b-00-0", Visible: "GPU-1", ActiveThreadPercentage: 50, PinnedMemoryBytes: 1 << 30}

func ensure(t *testing.T, p *Pods, d prepare.Daemon) prepare.DaemonFolders {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	folders, err := p.Ensure(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// refused calls with a short timeout and returns the error.
func refused(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := call(ctx)
	if err == nil {
		t.Fatal("got no error")
	}
	return err
}

func TestEnsureCreatesPod(t *testing.T) {
	c := newCluster(t)
	folders := ensure(t, c.agent("agent-1"), shared)
	want := prepare.DaemonFolders{
		Pipe: filepath.Join(c.dir, shared.Name, "pipe"),
		Shm:  "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/shm",
	}
	if diff := cmp.Diff(want, folders); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
	pod := c.only()
	labels := map[string]string{
		"app.kubernetes.io/name": "tessera-mps", "app.kubernetes.io/part-of": "tessera", "app.kubernetes.io/instance": shared.Name,
		"tessera.dev/gpu": shared.GPU, "tessera.dev/node": node,
	}
	if diff := cmp.Diff(labels, pod.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	yes, host := true, corev1.MountPropagationHostToContainer
	container := corev1.Container{
		Name: "tessera-mps", Image: "registry/tessera/node:1", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/etc/tessera-termination",
		Args:            []string{"--config=/etc/tessera/node.yaml", "mps", "--name=" + shared.Name, "--dir=" + c.dir},
		Env:             []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}}},
		SecurityContext: &corev1.SecurityContext{Privileged: &yes},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "shm", MountPath: "/dev/shm"},
			{Name: "mps", MountPath: filepath.Join(c.dir, shared.Name)},
			{Name: "pipe", MountPath: filepath.Join(c.dir, shared.Name, "pipe")},
			{Name: "log", MountPath: filepath.Join(c.dir, shared.Name, "log")},
			{Name: "config", MountPath: "/etc/tessera", ReadOnly: true},
			{Name: "host", MountPath: "/host", MountPropagation: &host},
			{Name: "dev", MountPath: "/dev", MountPropagation: &host},
		},
	}
	if diff := cmp.Diff([]corev1.Container{container}, pod.Spec.Containers, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	if pod.Spec.NodeName != node || !pod.Spec.HostPID || pod.Spec.PriorityClassName != "system-node-critical" || pod.Spec.ServiceAccountName != "" {
		t.Errorf("the pod runs on another node or as another user: %+v", pod.Spec)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod has a token")
	}
	for i, name := range []string{"shm", "pipe", "log"} {
		if v := pod.Spec.Volumes[i]; v.Name != name || v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory || (v.EmptyDir.SizeLimit == nil) != (name == "shm") {
			t.Errorf("%s is no tmpfs with a size, or shm with one: %+v", name, v)
		}
	}
	if owner := metav1.GetControllerOf(&pod); owner == nil || owner.Kind != "Node" || owner.UID != "node-uid" {
		t.Errorf("the pod is not the node's: %+v", owner)
	}
}

func TestEnsureFindsServingDaemon(t *testing.T) {
	c := newCluster(t)
	first := ensure(t, c.agent("agent-1"), shared)
	// The next agent needs no API server for a daemon that serves, nor for a change of its limits.
	c.change(func() { c.down = true })
	again := c.agent("agent-2")
	if diff := cmp.Diff(first, ensure(t, again, shared)); diff != "" {
		t.Errorf("folders of the next agent (-first +again):\n%s", diff)
	}
	other := shared
	other.ActiveThreadPercentage = 0
	if diff := cmp.Diff(first, ensure(t, again, other)); diff != "" {
		t.Errorf("folders after other limits (-first +again):\n%s", diff)
	}
	if c.made != 1 {
		t.Errorf("%d pods were made", c.made)
	}
}

func TestEnsureReplaces(t *testing.T) {
	tests := map[string]func(t *testing.T, c *cluster, pod corev1.Pod){
		"a pod that was deleted": func(t *testing.T, c *cluster, pod corev1.Pod) {
			if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "kubelet ends the pod", func() bool { return !c.runs(shared.Name) })
		},
		"a pod that is gone": func(_ *testing.T, c *cluster, pod corev1.Pod) {
			c.change(func() {
				c.end(pod.UID)
				_ = c.client.Tracker().Delete(pods, namespace, pod.Name)
			})
		},
		"a pod that is being deleted": func(t *testing.T, c *cluster, pod corev1.Pod) {
			c.change(func() { c.slow = true; c.end(pod.UID) })
			if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			err := refused(t, func(ctx context.Context) error { _, err := c.agent("agent-1").Ensure(ctx, shared); return err })
			if !strings.Contains(err.Error(), pod.Name+" is still being deleted") || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while it is being deleted: %v", err)
			}
			c.change(func() { c.slow = false })
		},
		"a pod that kubelet evicted": func(_ *testing.T, c *cluster, pod corev1.Pod) {
			c.change(func() {
				c.end(pod.UID)
				pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
				_ = c.client.Tracker().Update(pods, &pod, namespace)
			})
		},
		"what a boot took away": func(t *testing.T, c *cluster, pod corev1.Pod) {
			c.change(func() {
				c.end(pod.UID)
				_ = c.client.Tracker().Delete(pods, namespace, pod.Name)
				if err := os.RemoveAll(c.dir); err != nil {
					t.Error(err)
				}
			})
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			ensure(t, c.agent("agent-1"), shared)
			happens(t, c, c.only())
			folders := ensure(t, c.agent("agent-1"), shared)
			if !strings.Contains(folders.Shm, "/uid-2/") || c.only().UID != "uid-2" || !c.runs(shared.Name) {
				t.Errorf("folders %+v, pod %s: want those of another pod that runs", folders, c.only().UID)
			}
		})
	}
}

// After a boot kubelet starts the pod again, before the daemon is requested.
func TestEnsureAfterReboot(t *testing.T) {
	c := newCluster(t)
	first := ensure(t, c.agent("agent-1"), shared)
	c.change(func() {
		c.end("uid-1")
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff(first, ensure(t, c.agent("agent-1"), shared)); diff != "" {
		t.Errorf("folders (-before +after):\n%s", diff)
	}
}

func TestEnsureReportsWaitReason(t *testing.T) {
	c := newCluster(t)
	c.change(func() { c.image, c.away = "another", true })
	err := refused(t, func(ctx context.Context) error { _, err := c.agent("agent-1").Ensure(ctx, shared); return err })
	if !strings.Contains(err.Error(), "kubelet has not started it") {
		t.Errorf("at once: %v", err)
	}
	c.change(func() { c.away = false })
	eventually(t, "kubelet takes the pod up", func() bool { return len(c.only().Status.ContainerStatuses) > 0 })
	err = refused(t, func(ctx context.Context) error { _, err := c.agent("agent-1").Ensure(ctx, shared); return err })
	for _, part := range []string{shared.Name, "is Pending", "ImagePullBackOff: no such image"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want %q in it", err, part)
		}
	}
	// The upgraded agent has an image that can be pulled. Its pod replaces the one that hangs.
	c.change(func() {
		c.image = "registry/tessera/node:2"
		if err := c.client.Tracker().Add(agentPod("agent-2", "registry/tessera/node:2")); err != nil {
			t.Error(err)
		}
	})
	ensure(t, c.agent("agent-2"), shared)
	if pod := c.only(); pod.UID != "uid-2" {
		t.Errorf("pod %s serves", pod.UID)
	}
}

// An upgraded agent keeps a daemon that an earlier version created.
func TestEnsureKeepsRunningPodOfOlderAgent(t *testing.T) {
	c := newCluster(t)
	first := ensure(t, c.agent("agent-1"), shared)
	c.change(func() {
		if err := c.client.Tracker().Add(agentPod("agent-2", "registry/tessera/node:2")); err != nil {
			t.Error(err)
		}
	})
	other := shared
	other.PinnedMemoryBytes *= 2
	if diff := cmp.Diff(first, ensure(t, c.agent("agent-2"), other)); diff != "" {
		t.Errorf("folders (-first +upgraded):\n%s", diff)
	}
}

func TestEnsureReportsDaemonError(t *testing.T) {
	c := newCluster(t)
	c.change(func() { c.image = "none, so that no supervisor runs" })
	folder := filepath.Join(c.dir, shared.Name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(nil, folder, stateName, state{Config: configuration(shared), Restarts: 3, LastError: "no libcuda", LastErrorAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	err := refused(t, func(ctx context.Context) error { _, err := c.agent("agent-1").Ensure(ctx, shared); return err })
	if !strings.Contains(err.Error(), "last error of 3") || !strings.Contains(err.Error(), "no libcuda") {
		t.Errorf("got %v", err)
	}
}

func TestEnsureRefused(t *testing.T) {
	c := newCluster(t)
	change := func(change func(*prepare.Daemon)) prepare.Daemon {
		d := shared
		change(&d)
		return d
	}
	limitedBy := func(limits string) prepare.Daemon {
		return change(func(d *prepare.Daemon) {
			d.Visible, d.PinnedMemoryBytes, d.DeviceMemoryBytes = "GPU-1,GPU-2", 0, limits
		})
	}
	tests := map[string]struct {
		pods    *Pods
		d       prepare.Daemon
		message string
	}{
		"a path for a name":    {c.agent("agent-1"), change(func(d *prepare.Daemon) { d.Name = "../x" }), "must be a DNS label"},
		"no device":            {c.agent("agent-1"), change(func(d *prepare.Daemon) { d.Visible = "" }), "no device"},
		"a percentage of 101":  {c.agent("agent-1"), change(func(d *prepare.Daemon) { d.ActiveThreadPercentage = 101 }), "must be 1 to 100"},
		"memory for nothing":   {c.agent("agent-1"), change(func(d *prepare.Daemon) { d.PinnedMemoryBytes = 1000 }), "at least 1Mi"},
		"memory for no device": {c.agent("agent-1"), limitedBy("1073741824"), "must be one for each of 2 devices, not 1"},
		"memory of three":      {c.agent("agent-1"), limitedBy("1073741824,0,0"), "must be one for each of 2 devices, not 3"},
		"a little for one":     {c.agent("agent-1"), limitedBy("1073741824,1000"), "memory limit of device 1, 1000 bytes: must be at least 1Mi"},
		"less than nothing":    {c.agent("agent-1"), limitedBy("-1073741824,0"), "memory limit of device 0"},
		"text for memory":      {c.agent("agent-1"), limitedBy("1073741824,1G"), "memory limit of device 1"},
		"one limit and two": {c.agent("agent-1"), change(func(d *prepare.Daemon) {
			d.Visible, d.DeviceMemoryBytes = "GPU-1,GPU-2", "1073741824,0"
		}), "cannot be together with one of 1073741824 bytes for all"},
		"an agent without pod": {c.agent(""), shared, "POD_NAME"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := test.pods.Ensure(t.Context(), test.d); err == nil || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %q", err, test.message)
			}
		})
	}
	c.client.PrependReactor("create", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(pods.GroupResource(), "", errors.New("the policy"))
	})
	if _, err := c.agent("agent-1").Ensure(t.Context(), shared); !apierrors.IsForbidden(err) {
		t.Errorf("a refusal of the API server: got %v", err)
	}
}

// Two agents overlap, and one creates the pod first.
func TestEnsureOfTwoAgents(t *testing.T) {
	c := newCluster(t)
	theirs, err := c.agent("agent-1").pod(t.Context(), configuration(shared))
	if err != nil {
		t.Fatal(err)
	}
	theirs.UID = "uid-of-the-other"
	lost := false
	c.client.PrependReactor("get", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if get, ok := action.(k8stesting.GetAction); ok && !lost && get.GetName() == theirs.Name {
			lost = true
			return true, nil, errors.Join(apierrors.NewNotFound(pods.GroupResource(), theirs.Name), c.client.Tracker().Add(theirs))
		}
		return false, nil, nil
	})
	folders := ensure(t, c.agent("agent-1"), shared)
	if !strings.Contains(folders.Shm, "/uid-of-the-other/") {
		t.Errorf("folders of a pod that was not made: %+v", folders)
	}
}

func TestRelease(t *testing.T) {
	release := func(ctx context.Context, c *cluster) error { return c.agent("agent-1").Release(ctx, shared.Name) }
	tests := map[string]func(t *testing.T, c *cluster){
		"a daemon that serves": func(t *testing.T, c *cluster) { ensure(t, c.agent("agent-1"), shared) },
		"nothing":              func(*testing.T, *cluster) {},
		"a pod that never started": func(t *testing.T, c *cluster) {
			c.change(func() { c.image = "another" })
			_ = refused(t, func(ctx context.Context) error { _, err := c.agent("agent-1").Ensure(ctx, shared); return err })
		},
		"a daemon whose pod was deleted by force": func(t *testing.T, c *cluster) {
			ensure(t, c.agent("agent-1"), shared)
			pod := c.only()
			c.change(func() { _ = c.client.Tracker().Delete(pods, namespace, pod.Name) })
			err := refused(t, func(ctx context.Context) error { return release(ctx, c) })
			if !strings.Contains(err.Error(), "still hold the lock") {
				t.Errorf("while its processes live: %v", err)
			}
			c.change(func() { c.end(pod.UID) })
		},
		"a daemon on a slow kubelet": func(t *testing.T, c *cluster) {
			ensure(t, c.agent("agent-1"), shared)
			c.change(func() { c.slow = true })
			err := refused(t, func(ctx context.Context) error { return release(ctx, c) })
			if !strings.Contains(err.Error(), "still hold the lock") || !c.runs(shared.Name) {
				t.Errorf("while kubelet sleeps: %v", err)
			}
			c.change(func() { c.slow = false })
		},
		"what a boot left": func(t *testing.T, c *cluster) {
			ensure(t, c.agent("agent-1"), shared)
			c.change(func() { c.end("uid-1"); _ = os.RemoveAll(c.dir) })
		},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			happens(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			if err := release(ctx, c); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(c.dir, shared.Name)); !errors.Is(err, os.ErrNotExist) || c.runs(shared.Name) {
				t.Errorf("something is left: %v", err)
			}
			eventually(t, "the pod is gone", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.daemonPods()) == 0
			})
			if list, err := c.agent("agent-1").List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("List: %v, %v", list, err)
			}
		})
	}
	t.Run("without an API server", func(t *testing.T) {
		c := newCluster(t)
		ensure(t, c.agent("agent-1"), shared)
		c.change(func() { c.down = true })
		if err := release(t.Context(), c); err == nil {
			t.Error("the pod cannot have been deleted")
		}
		if _, err := os.Stat(filepath.Join(c.dir, shared.Name, configName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the daemon received no quit: %v", err)
		}
	})
}

func TestListAndStates(t *testing.T) {
	c := newCluster(t)
	private := prepare.Daemon{Name: "mps-8f7d3c1e-0000-4000-8000-000000000001-0", ClaimUID: "8f7d3c1e-0000-4000-8000-000000000001", Visible: "GPU-2"}
	ensure(t, c.agent("agent-1"), shared)
	ensure(t, c.agent("agent-1"), private)
	elsewhere, err := New(Config{Node: "node2", Client: c.client, Namespace: namespace, Pod: "agent-1", Dir: c.dir}).pod(t.Context(), configuration(shared))
	if err == nil || !apierrors.IsNotFound(err) {
		t.Fatalf("a node that is not there: %v, %v", elsewhere, err)
	}
	pod := c.podOf(t, shared.Name)
	pod.Name, pod.Labels["tessera.dev/node"] = "another", "node2"
	c.change(func() {
		if err := c.client.Tracker().Add(&pod); err != nil {
			t.Error(err)
		}
	})
	want := []prepare.Daemon{{Name: private.Name, ClaimUID: private.ClaimUID}, {Name: shared.Name, GPU: shared.GPU}}
	list, err := c.agent("agent-1").List(t.Context())
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
	states, err := c.agent("agent-1").States()
	wanted := []State{{Name: private.Name, ClaimUID: private.ClaimUID, Serving: true}, {Name: shared.Name, GPU: shared.GPU, Serving: true}}
	if diff := cmp.Diff(wanted, states); err != nil || diff != "" {
		t.Errorf("States: %v (-want +got):\n%s", err, diff)
	}
	// A daemon without a pod is listed as long as it has its folder.
	c.change(func() { _ = c.client.Tracker().Delete(pods, namespace, c.agent("").podName(private.Name)) })
	list, err = c.agent("agent-1").List(t.Context())
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("List without the pod: %v (-want +got):\n%s", err, diff)
	}
}

// The pods of the node are listed at the start and then every quarter to half an hour. Until the list succeeds, it is repeated. A daemon that was
// released is not listed any more.
func TestListReadsPodsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		lists, busy := 0, true
		client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			lists++
			return busy, nil, apierrors.NewTooManyRequests("busy", 1)
		})
		orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{
			nameLabel: daemonName, nodeLabel: node, instanceLabel: shared.Name, gpuLabel: shared.GPU,
		}}}
		p := New(Config{Node: node, Client: client, Namespace: namespace, Pod: "agent-1", Dir: t.TempDir()})
		orphan.Name = p.podName(shared.Name)
		if err := client.Tracker().Add(orphan); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if found, err := p.List(t.Context()); !apierrors.IsTooManyRequests(err) {
				t.Errorf("while the API server is busy: %v, %v", found, err)
			}
			<-time.After(time.Minute)
		}
		busy, lists = false, 0
		for minute := range 600 {
			found, err := p.List(t.Context())
			if err != nil || len(found) != 1 {
				t.Fatalf("minute %d: %v, %v", minute, found, err)
			}
			<-time.After(time.Minute)
		}
		if lists < 20 || lists > 40 {
			t.Errorf("%d lists in 10 hours", lists)
		}
		if err := p.Release(t.Context(), shared.Name); err != nil {
			t.Fatal(err)
		}
		if found, err := p.List(t.Context()); err != nil || len(found) != 0 {
			t.Errorf("after its release: %v, %v", found, err)
		}
	})
}

// podOf returns the pod of one of several daemons.
func (c *cluster) podOf(t *testing.T, name string) corev1.Pod {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range c.daemonPods() {
		if pod.Labels["app.kubernetes.io/instance"] == name {
			return pod
		}
	}
	t.Fatalf("no pod of %s", name)
	return corev1.Pod{}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("very-long.", 8) + "example"
	for _, text := range []string{node, long, long + "2", strings.Repeat("a.", 100) + "b"} {
		got := labelValue(text)
		if len(got) > 63 || labelValue(text) != got || len(text) <= 63 && got != text {
			t.Errorf("%s: %s", text, got)
		}
	}
	if labelValue(long) == labelValue(long+"2") {
		t.Error("two nodes have one label")
	}
}

func TestCovers(t *testing.T) {
	tests := []struct {
		mounted, need string
		want          bool
	}{
		{"/host", "/host", true},
		{"/host", "/host/run/nvidia/driver", true},
		{"/host", "/hosts", false},
		{"/etc/tessera", "/etc/tessera/node.yaml", true},
		{"/dev/shm", "/dev", true},
		{"/var/lib/kubelet", "/", false},
		{"/", "/dev", true},
	}
	for _, test := range tests {
		if got := covers(test.mounted, test.need); got != test.want {
			t.Errorf("%s for %s: got %v", test.mounted, test.need, got)
		}
	}
}
