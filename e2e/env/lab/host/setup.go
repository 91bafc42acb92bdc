package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// ErrNotRoot is returned if the lab runs without root.
var ErrNotRoot = errors.New("the lab needs root")

// Touches describes what a lab changes on the host, for users who must decide on running it as root.
func Touches(folder, cache string) string {
	lines := []string{
		"A lab needs root for network namespaces, mounts, control groups and containers. On this machine it will",
		"  - install these packages, if missing: " + packageList(Missing(Needs())),
		"  - keep built programs in " + cache,
		"  - keep its state, logs and file systems below " + folder + " until `lab down`",
		"  - add one network link with an address of a free private /24, and control groups named tessera-lab-*",
		fmt.Sprintf("  - raise %s to %d until the next boot, if it is lower", inotifySetting, inotifyInstances),
		"It opens no port on the host's own addresses, changes no other kernel setting, and `lab down` removes all but packages and cache.",
	}
	return strings.Join(lines, "\n")
}

func packageList(packages []string) string {
	if len(packages) == 0 {
		return "none is missing"
	}
	return strings.Join(packages, " ")
}

// Check returns an error if a lab with these requirements cannot run on this host: it requires Linux, root and the packages of Install.
func Check(folder, cache string, needs []Need) error {
	if err := CheckRoot(folder, cache); err != nil {
		return err
	}
	if missing := Missing(needs); len(missing) > 0 {
		return fmt.Errorf("missing on this machine: %s; run `lab setup`, for virtual machines with --virtual", strings.Join(missing, " "))
	}
	if instances, err := readInotifyInstances(inotifyFile); err != nil || instances < inotifyInstances {
		return errors.Join(fmt.Errorf("%s is %d, a lab needs %d; run `lab setup`", inotifySetting, instances, inotifyInstances), err)
	}
	return nil
}

// CheckRoot returns an error on systems other than Linux, and for users other than root, with the reasons.
func CheckRoot(folder, cache string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a lab runs on Linux only, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w\n%s", ErrNotRoot, Touches(folder, cache))
	}
	return nil
}

// Install installs missing packages on Debian and Ubuntu, and returns their names in an error elsewhere. It raises the
// kernel's limit of inotify instances.
func Install(ctx context.Context, progress io.Writer, needs []Need) error {
	return errors.Join(raiseInotifyInstances(inotifyFile), installPackages(ctx, progress, needs))
}

func installPackages(ctx context.Context, progress io.Writer, needs []Need) error {
	missing := Missing(needs)
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this system has no apt-get: install by its own means what Debian calls %s", strings.Join(missing, " "))
	}
	fmt.Fprintf(progress, "installing %s\n", strings.Join(missing, " ")) //nolint:errcheck // progress is for the eye
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, output)
		}
	}
	if still := Missing(needs); len(still) > 0 {
		return fmt.Errorf("still missing after the installation: %s", strings.Join(still, " "))
	}
	return nil
}
