package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tessera-gpu/tessera/e2e/env/lab/host"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

const (
	// patience is the timeout for the API server, a node or the first objects of the controllers to become ready. It
	// includes a margin for a busy host, which may even stop running the lab for a minute.
	patience = 5 * time.Minute
	// virtualBoot is that for a virtual machine, which is ready after one minute on idle processors.
	virtualBoot = 15 * time.Minute
	readyPause  = 200 * time.Millisecond
	bootIDFile  = "/proc/sys/kernel/random/boot_id"
	gpuDisk     = "gpu" // folder of a node's disk
	// bootProgram is the path in the folder of the hardware of the program that applies the boot of a virtual machine.
	bootProgram = "bin/boot"
)

// makeNode creates the machine of node i with its disk, certificates and hardware. It does not boot it.
func (l *Lab) makeNode(ctx context.Context, p *preparation, i int) error {
	node, err := l.recipeNode(p, i)
	if err != nil {
		return err
	}
	spec, err := recipe.Worker(p.cluster, node)
	if err != nil {
		return err
	}
	files, err := p.credentials.node(node)
	if err != nil {
		return err
	}
	spec.Files = slices.Concat(spec.Files, files, ownFiles(l.state.Nodes[i]))
	disk := l.computer(i).Disk()
	folders := []string{gpuDisk}
	if l.state.Nodes[i].Virtual {
		spec.Mounts, err = l.makeVirtual(ctx, p, i)
	} else {
		spec.Mounts = append(binaryMounts(p.folders), machine.Mount{Source: l.images(), Target: recipe.Images})
		err = l.machine(node.Name).Make()
		for _, folder := range recipe.Persistent() {
			spec.Mounts = append(spec.Mounts, machine.Mount{Source: filepath.Join(disk, folder), Target: folder})
			folders = append(folders, folder)
		}
	}
	if err != nil {
		return err
	}
	spec.Mounts = append(spec.Mounts, machine.Mount{Source: filepath.Join(disk, gpuDisk), Target: GPUFolder})
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(disk, folder), 0o755); err != nil {
			return fmt.Errorf("make a folder on the disk: %w", err)
		}
	}
	if n := l.state.Nodes[i]; n.GPU != "" {
		if err := l.hardware.Install(ctx, n, filepath.Join(disk, gpuDisk)); err != nil {
			return fmt.Errorf("install GPUs %q: %w", n.GPU, err)
		}
	}
	return l.saveSpec(spec)
}

// makeVirtual creates the disk of the virtual machine of node i, and returns what is copied to it.
func (l *Lab) makeVirtual(ctx context.Context, p *preparation, i int) ([]machine.Mount, error) {
	v := l.virtual(i)
	if err := v.Install(ctx, p.disk); err != nil {
		return nil, err
	}
	store := filepath.Join(v.Disk(), "containerd")
	if err := l.fillStore(ctx, p.folders, p.images, store); err != nil {
		return nil, err
	}
	return append(nodePrograms(p.folders), machine.Mount{Source: store, Target: recipe.ContainerdFolder}), nil
}

// ownFiles returns the additional files of a node.
func ownFiles(node NodeSpec) []machine.File {
	var files []machine.File
	for _, path := range slices.Sorted(maps.Keys(node.Files)) {
		file := machine.File{Path: path, Content: []byte(node.Files[path]), Mode: 0o644}
		if filepath.Base(filepath.Dir(path)) == "bin" {
			file.Mode = 0o755
		}
		files = append(files, file)
	}
	return files
}

func (l *Lab) recipeNode(p *preparation, i int) (recipe.Node, error) {
	spec := l.state.Nodes[i]
	cni, err := host.CNI()
	if spec.Virtual {
		cni, err = "/usr/lib/cni", nil // where Debian has them
	}
	if err != nil {
		return recipe.Node{}, err
	}
	hardware := ""
	if spec.Virtual && spec.GPU != "" {
		hardware = filepath.Join(GPUFolder, bootProgram)
	}
	return recipe.Node{
		Name: spec.Name, Labels: spec.Labels, Taints: spec.Taints,
		Address: l.state.Plan.Node(i), Pods: l.state.Plan.Pods(i),
		CNI: cni, Images: p.images, Runtime: spec.Runtime, Virtual: spec.Virtual, Hardware: hardware,
	}, nil
}

// boot starts the machine of node i, which must be down, and returns when the node is Ready. Every boot has its own
// boot ID, which kubelet reports: it distinguishes the readiness of this boot from that of the previous one.
func (l *Lab) boot(ctx context.Context, i int) error {
	name := l.state.Nodes[i].Name
	if err := l.connect(ctx, i); err != nil {
		return fmt.Errorf("connect %s: %w", name, err)
	}
	spec, err := l.loadSpec(name)
	if err != nil {
		return err
	}
	began := time.Now().Truncate(time.Second) // heartbeats have a resolution of one second
	start, limit := l.startNamespace, patience
	if l.state.Nodes[i].Virtual {
		start, limit = l.startVirtual, virtualBoot
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	bootID, err := start(ctx, i, spec)
	if err != nil {
		return err
	}
	if err := l.computer(i).Wait(ctx); err != nil {
		return fmt.Errorf("wait for the services of %s: %w", name, err)
	}
	return l.awaitNode(ctx, name, func(node *corev1.Node) string {
		ready := readiness(node)
		switch {
		case node.Status.NodeInfo.BootID != bootID, ready.LastHeartbeatTime.Time.Before(began):
			return "kubelet has not reported this boot"
		case ready.Status != corev1.ConditionTrue:
			return ready.Message
		default:
			return ""
		}
	})
}

// startNamespace starts the machine of node i with a new boot ID, and returns the ID.
func (l *Lab) startNamespace(ctx context.Context, i int, spec machine.Spec) (string, error) {
	bootID := string(uuid.NewUUID())
	if err := l.announceBoot(ctx, i, bootID); err != nil {
		return "", err
	}
	spec.Masks = append(spec.Masks, machine.File{Path: bootIDFile, Content: []byte(bootID + "\n"), Mode: 0o444})
	return bootID, l.machine(spec.Name).Boot(ctx, l.guest(), spec)
}

// startVirtual starts the virtual machine of node i and returns the boot ID of its kernel.
func (l *Lab) startVirtual(ctx context.Context, i int, spec machine.Spec) (string, error) {
	l.say("starting the virtual machine %s: a minute on idle processors", spec.Name)
	if err := l.virtual(i).Boot(ctx, l.guest(), spec); err != nil {
		return "", err
	}
	node, err := l.Node(spec.Name)
	if err != nil {
		return "", err
	}
	bootID, err := node.Exec(ctx, "cat", bootIDFile)
	return strings.TrimSpace(string(bootID)), err
}

// announceBoot passes the boot ID to the hardware of node i, if it has any.
func (l *Lab) announceBoot(ctx context.Context, i int, bootID string) error {
	node := l.state.Nodes[i]
	if node.GPU == "" {
		return nil
	}
	if l.hardware == nil {
		return fmt.Errorf("boot %s: %w", node.Name, errNoHardware)
	}
	if err := l.hardware.Boot(ctx, filepath.Join(l.machine(node.Name).Disk(), gpuDisk), bootID); err != nil {
		return fmt.Errorf("boot the hardware of %s: %w", node.Name, err)
	}
	return nil
}

// awaitNode waits until flaw returns an empty string for the node. An unavailable API server is retried.
func (l *Lab) awaitNode(ctx context.Context, name string, flaw func(*corev1.Node) string) error {
	last := "the node has not registered"
	err := wait.PollUntilContextCancel(ctx, readyPause, true, func(ctx context.Context) (bool, error) {
		node, err := l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil //nolint:nilerr // it is waited for
		}
		last = flaw(node)
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s to be ready: %w: %s", name, err, last)
	}
	return nil
}

// awaitAccount waits until the controllers have created the default service account: before that, every pod is
// rejected.
func (l *Lab) awaitAccount(ctx context.Context) error {
	var last error
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, readyPause, true, func(ctx context.Context) (bool, error) {
		_, last = l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the default service account: %w: %w", err, last)
	}
	return nil
}

func readiness(node *corev1.Node) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet has not reported"}
}
