// Package dist makes the files of a release. Equal commits, versions and tools give equal bytes: the files have no times but that of the commit.
package dist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/util/version"
)

// Names of files whose name does not contain the version.
const (
	SumsFile       = "SHA256SUMS"     // sha256sum's list of all other files
	ReferencesFile = "references.txt" // the images and the chart with their digests, one a line
	KrewFile       = "tessera.yaml"   // the manifest for krew's index
)

// Options describe a release.
type Options struct {
	// Source is the root of the repository, a git work tree without changes.
	Source string
	// Out is the folder of the files; it is made, or empty.
	Out string
	// Version is a semantic version with a v.
	Version string
	// Registry is the registry with a path from which clusters pull the images. The chart contains it.
	Registry string
	// SBOM is the program cyclonedx-gomod.
	SBOM string
	// Progress gets a line for each file.
	Progress io.Writer
}

// release is a release that is being written.
type release struct {
	Options
	revision string
	time     time.Time // of the commit
	folder   string    // of compiled programs; temporary
}

// Write makes all files of a release.
func Write(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	r := release{Options: o}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	if err := makeEmpty(o.Out); err != nil {
		return err
	}
	var err error
	if r.folder, err = os.MkdirTemp("", "tessera-release-"); err != nil {
		return fmt.Errorf("make a folder for programs: %w", err)
	}
	defer os.RemoveAll(r.folder) //nolint:errcheck // a leftover is harmless
	archives, err := r.writeCLI(ctx)
	if err != nil {
		return err
	}
	if err := r.writeKrew(archives); err != nil {
		return err
	}
	images, err := r.writeImages(ctx)
	if err != nil {
		return err
	}
	chart, err := r.writeChart(images)
	if err != nil {
		return err
	}
	if err := r.writeReferences(append(images.references(), chart)); err != nil {
		return err
	}
	return r.writeSums()
}

func (o Options) validate() error {
	parsed, err := version.ParseSemantic(o.Version)
	if err != nil || o.Version != "v"+parsed.String() || parsed.BuildMetadata() != "" {
		return fmt.Errorf("version %q of the release: want a semantic version such as v1.2.3 or v1.2.3-rc.1", o.Version)
	}
	if _, err := name.NewRepository(o.Registry+"/node", name.StrictValidation); err != nil {
		return fmt.Errorf("registry %q of the release: %w", o.Registry, err)
	}
	return nil
}

// chartVersion is the version of the release as Helm requires it.
func (o Options) chartVersion() string { return strings.TrimPrefix(o.Version, "v") }

var errChanged = errors.New("the work tree has changes that are in no commit; commit or remove them, because a release is made from a commit")

// readCommit reads the commit and its time. Files that git ignores may exist.
func (r *release) readCommit(ctx context.Context) error {
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("%w:\n%s", errChanged, changes)
	}
	text, err := r.git(ctx, "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(text, " ")
	parsed, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of commit %s: %w", commit, err)
	}
	r.revision, r.time = commit, time.Unix(parsed, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", r.Source}, args...)...))
}

// output runs a command. The error has what the command wrote to its standard error.
func output(cmd *exec.Cmd) (string, error) {
	text, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return strings.TrimSpace(string(text)), nil
}

func makeEmpty(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the folder of the release: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("make the folder of the release: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder %s of the release is not empty; remove it", folder)
	}
	return nil
}

// write writes a file of the release.
func (r *release) write(file string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.Out, file), content, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	r.report(file)
	return nil
}

func (r *release) report(file string) {
	fmt.Fprintln(r.Progress, filepath.Join(r.Out, file)) //nolint:errcheck // progress is for the eye
}
