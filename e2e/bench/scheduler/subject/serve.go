package subject

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Serve runs a subject: it starts, writes an empty outcome to out when it is ready, then schedules one
// batch and writes one outcome for each line of in, until in ends.
func Serve(ctx context.Context, s Spec, in io.Reader, out io.Writer) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, ctx := errgroup.WithContext(ctx)
	c, err := enter(ctx, s)
	if err != nil {
		return err
	}
	group.Go(func() error {
		c.run(ctx)
		return nil
	})
	group.Go(func() error {
		defer end()
		defer c.gate.Open() // nothing waits for it longer
		return c.serve(ctx, s, in, json.NewEncoder(out))
	})
	return group.Wait()
}

func enter(ctx context.Context, s Spec) (*contender, error) {
	if s.Kubeconfig == "" {
		return inMemory(ctx, s)
	}
	dialed := &atomic.Int64{}
	client, err := connect(s.Kubeconfig, dialed)
	if err != nil {
		return nil, err
	}
	start := newScheduler
	if s.Variant == Null {
		start = newNull
	}
	c, err := start(ctx, s, client)
	if err != nil {
		return nil, err
	}
	c.dialed = dialed
	return c, nil
}

// connect returns a client without a rate limit, which counts its connections.
func connect(kubeconfig string, dialed *atomic.Int64) (kubernetes.Interface, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	access.QPS = -1
	access.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	access.ContentType, access.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(access)
}

func (c *contender) serve(ctx context.Context, s Spec, in io.Reader, out *json.Encoder) error {
	if err := out.Encode(Outcome{}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		outcome, err := c.schedule(ctx, s, o)
		if err != nil {
			outcome.Failure = err.Error()
		}
		if err := out.Encode(outcome); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Times of a measurement.
const (
	look = 10 * time.Millisecond
	// readLimit limits the time of the first read.
	readLimit = 5 * time.Minute
	// flush is the time after which kube-scheduler publishes buffered metrics.
	flush = 1200 * time.Millisecond
	// quiet is the time without a binding after which the remaining pods count as not fitting:
	// kube-scheduler retries after at most ten seconds.
	quiet = 15 * time.Second
)

// schedule opens the gate when all pods of the batch wait before it.
func (c *contender) schedule(ctx context.Context, s Spec, o order) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	enough := c.bound.Expect(o.Batch.Pods)
	c.supply(o.Batch)
	for c.waiting() < o.Batch.Pods {
		select {
		case <-ctx.Done():
			return Outcome{}, fmt.Errorf("wait for %d pods: %w", o.Batch.Pods, context.Cause(ctx))
		case <-time.After(look):
		}
	}
	runtime.GC()
	earlier, err := gathered()
	if err != nil {
		return Outcome{}, err
	}
	stop, err := profiled(s.Profile, o.Batch.Name)
	if err != nil {
		return Outcome{}, err
	}
	dialed := c.dialed.Load()
	before, began := used(), time.Now()
	c.gate.Open()
	c.settle(ctx, enough)
	after, outcome := used(), Outcome{Pods: o.Batch.Pods, Read: c.read, Cycles: c.gate.Shut(), Scores: c.scores.take()}
	var last time.Time
	outcome.Bound, last = c.bound.Bound()
	outcome.Dialed = int(c.dialed.Load() - dialed)
	outcome.Took, outcome.CPU, outcome.Allocated = last.Sub(began), after.cpu-before.cpu, after.allocated-before.allocated
	if err := stop(); err != nil {
		return outcome, err
	}
	time.Sleep(flush)
	runtime.GC()
	outcome.Live = used().live
	if err := writeHeap(s.HeapProfile, o.Batch.Name); err != nil {
		return outcome, err
	}
	now, err := gathered()
	outcome.Histograms = observed(now, earlier)
	return outcome, err
}

// settle waits until all pods are bound, the limit is reached, or no more pods get bound.
func (c *contender) settle(ctx context.Context, enough <-chan struct{}) {
	tick := time.NewTicker(quiet / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-enough:
			return
		case <-tick.C:
			// Until the first pod is bound it may still be reading the cluster.
			if bound, last := c.bound.Bound(); bound > 0 && time.Since(last) > quiet {
				return
			}
		}
	}
}

// usage is the resource usage of the process so far.
type usage struct {
	cpu             time.Duration
	allocated, live uint64
}

func used() usage {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u := usage{allocated: memory.TotalAlloc, live: memory.HeapAlloc}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err == nil { // it fails for bad arguments only
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u
}

// profiled writes a profile of the processor from now on; the function ends it.
func profiled(path, batch string) (func() error, error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path + "-" + batch + ".pprof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// writeHeap writes a profile of the heap as of the last collection.
func writeHeap(path, batch string) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path + "-" + batch + ".pprof")
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("heap").WriteTo(file, 0), file.Close())
}
