package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/chart"
)

// Shell runs command lines as an administrator of the cluster types them: with kubectl and helm in the PATH and the cluster's kubeconfig.
type Shell struct {
	// Dir is the working directory.
	Dir string
	env []string
}

// helmScript runs helm with other values in place of those that make push writes, which must exist.
const helmScript = `#!/bin/sh
for argument do
	shift
	if [ "$argument" = bin/deploy/values.yaml ]; then
		[ -s "$argument" ] || { echo "no $argument: run make push" >&2; exit 1; }
		argument=%q
	fi
	set -- "$@" "$argument"
done
exec %q "$@"
`

// NewShell returns a Shell. Its folder gets the program helm, which takes the lab's values in place of bin/deploy/values.yaml: images that the nodes have
// loaded, and the roots of the fake hardware. The other folders come after it in the PATH, before that of this process.
func (c *Cluster) NewShell(ctx context.Context, folder string, path ...string) (Shell, error) {
	helm, err := chart.New(ctx)
	if err != nil {
		return Shell{}, err
	}
	program, err := kubectl(ctx)
	if err != nil {
		return Shell{}, err
	}
	values := filepath.Join(folder, "lab-values.yaml")
	text, err := yaml.Marshal(labValues())
	if err != nil {
		return Shell{}, err
	}
	script := fmt.Sprintf(helmScript, values, helm.Program)
	if err := os.WriteFile(values, text, 0o644); err != nil {
		return Shell{}, fmt.Errorf("write the lab's values: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "helm"), []byte(script), 0o755); err != nil {
		return Shell{}, fmt.Errorf("write helm: %w", err)
	}
	path = append(append([]string{folder}, path...), filepath.Dir(program), os.Getenv("PATH"))
	env := []string{"KUBECONFIG=" + c.Kubeconfig(), "PATH=" + strings.Join(path, string(filepath.ListSeparator))}
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		env = append(env, name+"="+folder)
	}
	return Shell{env: env}, nil
}

// Setenv sets a variable of the environment.
func (s *Shell) Setenv(name, value string) { s.env = append(s.env, name+"="+value) }

// Run runs a line in bash and returns what it prints on standard output and standard error. The error has the output.
func (s Shell) Run(ctx context.Context, line string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), s.env...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%s: %w\n%s", line, err, output)
	}
	return string(output), nil
}
