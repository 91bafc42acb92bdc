package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// pendingPod is the pod of the examples that stays Pending.
const pendingPod = "share-rest"

// showNodes is the command that needs no CLI.
const showNodes = "kubectl get gpunodes,resourceslices,pods"

// useCommands are the commands that the demo prints at its end. Without tessera-scheduler, kube-scheduler has the reason why a pod is pending.
func useCommands(c *cluster.Cluster) []string {
	reason := "tessera explain pod/" + pendingPod
	if !lab.RunsOwnScheduler(c.Kubernetes()) {
		reason = "kubectl events --for pod/" + pendingPod
	}
	return []string{showNodes, "tessera gpus", "tessera claims", "tessera doctor", reason, "tessera upgrade plan"}
}

// installCLI builds the CLI as users do, below the cache, and returns the folder of the program.
func installCLI(ctx context.Context) (string, error) {
	source, err := binaries.Source()
	if err != nil {
		return "", err
	}
	cache, err := binaries.DefaultCache()
	if err != nil {
		return "", err
	}
	prefix := filepath.Join(cache, "cli")
	fmt.Println("make install PREFIX=" + prefix)
	if output, err := exec.CommandContext(ctx, "make", "-C", source, "install", "PREFIX="+prefix).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the CLI: %w\n%s", err, output)
	}
	return filepath.Join(prefix, "bin"), nil
}

// environment returns the line that makes the cluster and the programs in the folders available in a shell.
func environment(c *cluster.Cluster, folders ...string) string {
	return fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH", c.Kubeconfig(), strings.Join(folders, ":"))
}

// checkUse runs the printed commands. Every command must succeed and print something.
func checkUse(ctx context.Context, environment string, commands []string) error {
	for _, command := range commands {
		cmd := exec.CommandContext(ctx, "bash", "-euc", environment+"\n"+command)
		cmd.Stderr = os.Stderr
		output, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, output)
		}
		if len(output) == 0 {
			return fmt.Errorf("%s prints nothing", command)
		}
	}
	return nil
}

// printUse prints the commands to use the cluster, and the one to remove it.
func printUse(environment string, commands []string) {
	fmt.Println("\nThe cluster keeps running. To use it:")
	fmt.Println("  " + environment)
	for _, command := range commands {
		fmt.Println("  " + command)
	}
	fmt.Println("To remove it:\n  make demo-down")
}
