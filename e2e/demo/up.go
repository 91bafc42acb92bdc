package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/host"
	"github.com/tessera-gpu/tessera/e2e/tests/expect"
)

// examplesTimeout is the time limit for all examples together.
const examplesTimeout = 5 * time.Minute

// up starts a cluster in the folder and runs the examples. The cluster keeps running, also if an example fails.
func up(ctx context.Context, folder string) error {
	began := time.Now()
	if _, err := os.Stat(folder); err == nil {
		return fmt.Errorf("%w: `make demo-down`", lab.ErrExists)
	}
	programs, err := prepareHost(ctx, folder)
	if err != nil {
		return err
	}
	cli, err := installCLI(ctx)
	if err != nil {
		return err
	}
	examples, err := readExamples()
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, folder, nil)
	if err != nil {
		return err
	}
	fmt.Printf("running %d examples\n", len(examples))
	failed, err := runExamples(ctx, c, examples)
	if err != nil {
		return err
	}
	d, err := predictDecision(ctx, c)
	if err != nil {
		return err
	}
	unexpected, err := showLimits(ctx, c)
	if err != nil {
		return err
	}
	d.print(os.Stdout)
	fmt.Printf("\n%d examples, %d as expected, in %s.\n", len(examples), len(examples)-failed, time.Since(began).Round(time.Second))
	use := environment(c, cli, programs)
	commands := useCommands(c)
	printUse(use, commands)
	if err := checkUse(ctx, use, commands); err != nil {
		return fmt.Errorf("a command that is printed above fails: %w", err)
	}
	if unexpected > 0 {
		return errors.New("limits of GPU memory are not as expected; see UNEXPECTED above")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d examples have unexpected results; see UNEXPECTED above", failed, len(examples))
	}
	return nil
}

// readyTimeout is the time limit for nodes and for the pods of a Deployment to become ready.
const readyTimeout = 5 * time.Minute

// openCluster opens the demo's cluster and starts one if there is none. It also returns the folder with kubectl.
func openCluster(ctx context.Context, folder string) (*cluster.Cluster, string, error) {
	programs, err := prepareHost(ctx, folder)
	if err != nil {
		return nil, "", err
	}
	c, err := cluster.Open(folder)
	if errors.Is(err, lab.ErrNoLab) {
		c, err = startCluster(ctx, folder, nil)
	}
	return c, programs, err
}

// startCluster starts a cluster of bare nodes, installs the chart and prints the phases of the nodes until all are ready.
func startCluster(ctx context.Context, folder string, values cluster.Values) (*cluster.Cluster, error) {
	config, err := withLimited(cluster.Config{Folder: folder, Progress: os.Stdout})
	if err != nil {
		return nil, err
	}
	c, err := cluster.Bare(ctx, config)
	if err == nil && len(config.Nodes) > len(cluster.BareNodes()) {
		err = c.InstallLimitedDriver(ctx)
	}
	if err == nil {
		fmt.Println("helm install tessera deployments/helm/tessera: three nodes with GPUs and no driver, and one with its own driver, if this host can have it")
		err = c.InstallChart(ctx, values)
	}
	if err == nil {
		err = runWithNodeTrace(ctx, c, func(ctx context.Context) error { return c.AwaitPolicy(ctx, readyTimeout) })
	}
	if err != nil {
		return nil, fmt.Errorf("%w\nThe cluster keeps running for inspection. Remove it with `make demo-down`", err)
	}
	fmt.Println("kubectl wait --for=condition=Ready gpupolicy/default: condition met")
	return c, nil
}

// runWithNodeTrace prints a nodeTrace while f runs, and afterwards the phases of nodes that it has not printed yet.
func runWithNodeTrace(ctx context.Context, c *cluster.Cluster, f func(context.Context) error) error {
	tracing, stop := context.WithCancel(ctx)
	defer stop()
	trace := newNodeTrace(os.Stdout, time.Now)
	ended := make(chan error, 1)
	go func() { ended <- trace.follow(tracing, c) }()
	err := f(ctx)
	stop()
	err = errors.Join(err, <-ended)
	var nodes v1alpha1.GPUNodeList
	if failed := c.Kinds.List(ctx, &nodes); failed != nil {
		return errors.Join(err, failed)
	}
	for i := range nodes.Items {
		trace.handleNode(&nodes.Items[i], false)
	}
	return err
}

// prepareHost prints which changes a lab makes to this machine, installs missing packages and builds the cluster's programs. It
// returns the folder with kubectl.
func prepareHost(ctx context.Context, folder string) (string, error) {
	cache, err := binaries.DefaultCache()
	if err != nil {
		return "", err
	}
	if err := host.CheckRoot(folder, cache); err != nil {
		return "", err
	}
	fmt.Println(host.Touches(folder, cache))
	if err := host.Install(ctx, os.Stdout, host.Needs()); err != nil {
		return "", err
	}
	builder, err := binaries.NewBuilder(cache, os.Stdout)
	if err != nil {
		return "", err
	}
	folders, err := builder.Build(ctx, binaries.Etcd, binaries.Containerd, binaries.Helm, binaries.Kubernetes)
	return folders[binaries.Kubernetes], err
}

func readExamples() ([]expect.Example, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	examples, err := expect.Load(os.DirFS(filepath.Join(source, "deployments", "examples")))
	if err == nil && len(examples) == 0 {
		err = fmt.Errorf("no example in deployments/examples: %w", fs.ErrNotExist)
	}
	return examples, err
}

// result is the outcome of one example.
type result struct {
	example    expect.Example
	outcomes   []expect.Outcome
	complaints []string
}

// runExamples applies all examples concurrently and prints each result once it is final. It returns the number of unexpected
// results.
func runExamples(ctx context.Context, c *cluster.Cluster, examples []expect.Example) (failed int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, examplesTimeout, fmt.Errorf("not all examples have a result within %s", examplesTimeout))
	defer cancel()
	watcher, err := expect.NewWatcher(ctx, c.Client)
	if err != nil {
		return 0, err
	}
	results := make(chan result, len(examples))
	group, ctx := errgroup.WithContext(ctx)
	for _, example := range examples {
		group.Go(func() error {
			r, err := runExample(ctx, c, watcher, example)
			if err == nil {
				results <- r
			}
			return err
		})
	}
	go func() {
		err = group.Wait()
		close(results)
	}()
	for r := range results {
		r.print(os.Stdout)
		if len(r.complaints) > 0 {
			failed++
		}
	}
	return failed, err
}

func runExample(ctx context.Context, c *cluster.Cluster, watcher *expect.Watcher, example expect.Example) (result, error) {
	outcomes, err := watcher.Run(ctx, c, example)
	r := result{example: example, outcomes: outcomes}
	for _, outcome := range outcomes {
		for _, complaint := range expect.Compare(outcome, outcomes) {
			r.complaints = append(r.complaints, fmt.Sprintf("%s: %s", outcome.Subject, complaint))
		}
	}
	return r, err
}
