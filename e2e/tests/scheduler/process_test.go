package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// taskVariable makes the test's binary a scheduler; it has a task as JSON.
const taskVariable = "TESSERA_TEST_SCHEDULER"

// task is what a scheduler process does.
type task struct {
	Kubeconfig string
	// Identity is the process's name in the election of a leader; without one it schedules at once.
	Identity string
	// Kill is the place where the process ends as by kill -9, at the Nth passage.
	Kill string
	Nth  int64
	// Fail has the first write of this name fail.
	Fail string
}

// launch starts a scheduler process with the test's own binary. It ends with the test at the latest.
func launch(t *testing.T, todo task) *harness.Process {
	t.Helper()
	todo.Kubeconfig = shared.Kubeconfig
	text, err := json.Marshal(todo)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	p, err := harness.Start(filepath.Join(t.TempDir(), "scheduler.log"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// perform is a scheduler process's life.
func perform(ctx context.Context, text string) error {
	var todo task
	if err := json.Unmarshal([]byte(text), &todo); err != nil {
		return err
	}
	access, err := connection(todo.Kubeconfig)
	if err != nil {
		return err
	}
	s, _, err := newScheduler(ctx, access, all(at(todo.Kill, todo.Nth, die), at("before "+todo.Fail, 1, broken)))
	if err != nil {
		return err
	}
	if todo.Identity == "" {
		s.Run(ctx)
		return nil
	}
	return lead(ctx, access, todo.Identity, s.Run)
}

// connection returns access to the API server as an administrator without a rate limit.
func connection(kubeconfig string) (*rest.Config, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	access.ContentType, access.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return access, nil
}

// die ends the process at once.
func die() error {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}

// errBroken is a connection that breaks.
var errBroken = errors.New("connection reset")

func broken() error { return errBroken }

// lead runs the work while the identity is the leader. A process that is suspended for a while stays leader; vacate is for one that is
// dead.
func lead(ctx context.Context, access *rest.Config, identity string, work func(context.Context)) error {
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: leaseName},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 2 * harness.Patience, RenewDeadline: harness.Patience, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: work, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return fmt.Errorf("%s leads no more", identity)
}

// leaseName is the lease of the schedulers.
const leaseName = "tessera-test-scheduler"

// newScheduler returns kube-scheduler as deployments/ configures it, with our plugin behind the seam, and its informers. Its caches have
// the state of the API server, and it schedules nothing before Run.
func newScheduler(ctx context.Context, access *rest.Config, s seam) (*scheduler.Scheduler, informers.SharedInformerFactory, error) {
	loaded, err := configuration()
	if err != nil {
		return nil, nil, err
	}
	access.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, s} })
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(access, "scheduler"))
	if err != nil {
		return nil, nil, err
	}
	factory := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	made, err := scheduler.New(ctx, client, factory, nil, func(name string) events.EventRecorderLogger {
		return broadcaster.NewRecorder(clientscheme.Scheme, name)
	},
		scheduler.WithProfiles(loaded.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry(s)),
		scheduler.WithPodInitialBackoffSeconds(0), scheduler.WithPodMaxBackoffSeconds(0))
	if err != nil {
		return nil, nil, fmt.Errorf("make a scheduler: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return made, factory, made.WaitForHandlersSync(ctx)
}

// configuration is the shipped one: two profiles.
func configuration() (*schedulerconfig.KubeSchedulerConfiguration, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(source, "deployments", "scheduler", "replace", "config.yaml"))
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	loaded, ok := object.(*schedulerconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("read the scheduler's configuration: it is a %T", object)
	}
	return loaded, nil
}

// running is a scheduler in this process.
type running struct {
	*scheduler.Scheduler
	informers informers.SharedInformerFactory
	// stop ends it. Twice is fine.
	stop func()
}

// dropped waits until the node is gone from the scheduler's cache. Nodes and all other objects arrive by separate watches.
func (r running) dropped(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	return harness.Poll(ctx, func(context.Context) error {
		if known, err := r.Cache.GetNode(node); err == nil && known.Node() != nil {
			return fmt.Errorf("%s is still in the scheduler's cache", node)
		}
		return nil
	})
}

// sees waits until the node in the scheduler's cache has this number of taints.
func (r running) sees(ctx context.Context, node string, taints int) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	return harness.Poll(ctx, func(context.Context) error {
		known, err := r.Cache.GetNode(node)
		if err == nil && len(known.Node().Spec.Taints) != taints {
			err = fmt.Errorf("the scheduler's cache has the taints %v of %s", known.Node().Spec.Taints, node)
		}
		return err
	})
}

// preempt has the pod, which is not bound yet, make room for others.
func (r running) preempt(ctx context.Context, name string) error {
	p, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding := r.Profiles[p.Spec.SchedulerName].GetPodInPreBind(p.UID)
	if binding == nil || !binding.CancelPod("preempted by the test") {
		return fmt.Errorf("pod %s cannot be preempted now", name)
	}
	return nil
}

// schedule runs a scheduler in this process until the test ends or it is stopped.
func schedule(t *testing.T, s seam) running {
	t.Helper()
	access, err := connection(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	made, factory, err := newScheduler(ctx, access, s)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		made.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
		factory.Shutdown()
	}
	t.Cleanup(stop)
	return running{made, factory, stop}
}
