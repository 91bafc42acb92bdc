package bundle

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Target is what programs are compiled for. The zero value is this machine, and no release.
type Target struct {
	// OS and Architecture in Go's words; those of this machine if empty.
	OS, Architecture string
	// Version of the release and Revision of the repository, for package internal/version.
	Version, Revision string
}

// architecture returns the architecture of the target.
func (t Target) architecture() string { return cmp.Or(t.Architecture, runtime.GOARCH) }

// Compile compiles a command of the repository at source without cgo. Equal sources, toolchain and target give equal bytes.
func (t Target) Compile(ctx context.Context, source, pkg, out string) error {
	return t.compile(ctx, source, pkg, out, "CGO_ENABLED=0")
}

// compilers are the C compilers of Debian and Ubuntu for the architectures of the product.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// compileWithC compiles a command with cgo. For another architecture than that of this machine it needs a cross compiler.
func (t Target) compileWithC(ctx context.Context, source, pkg, out string) error {
	env := []string{"CGO_ENABLED=1"}
	if t.architecture() != runtime.GOARCH {
		compiler, ok := compilers[t.architecture()]
		if !ok {
			return fmt.Errorf("build %s: no C compiler for %s", pkg, t.architecture())
		}
		env = append(env, "CC="+compiler)
	}
	return t.compile(ctx, source, pkg, out, env...)
}

func (t Target) compile(ctx context.Context, source, pkg, out string, env ...string) error {
	const stamps = " -X github.com/tessera-gpu/tessera/internal/version."
	linker := ""
	if t.Version != "" {
		linker = "-s -w" + stamps + "release=" + t.Version + stamps + "revision=" + t.Revision
	}
	// The tag leaves gRPC's tracing pages out, and with them a third of the agent's size in memory.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags="+linker, "-o", out, pkg)
	cmd.Dir = source
	cmd.Env = append(append(os.Environ(), "GOOS="+cmp.Or(t.OS, runtime.GOOS), "GOARCH="+t.architecture()), env...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w\n%s", pkg, cmp.Or(t.OS, runtime.GOOS), t.architecture(), err, output)
	}
	return nil
}
