// Command race selects the packages whose tests run with the race detector.
//
// It reads import paths from its arguments and prints those that are concurrent, one per line; with
// -plain it prints those whose tests also have to run without the detector. `make test-unit` calls it,
// so a package is tested with -race from the commit on that starts its first goroutine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	plain := flag.Bool("plain", false, "print the packages to test without the race detector")
	flag.Parse()
	if err := run(context.Background(), *plain, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "race:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, plain bool, paths []string) error {
	packages, err := list(ctx, paths)
	if err != nil {
		return err
	}
	for _, p := range packages {
		s, err := scan(p)
		if err != nil {
			return fmt.Errorf("scan %s: %w", p.ImportPath, err)
		}
		if s.tested && (plain && s.runsPlain() || !plain && s.concurrent) {
			fmt.Println(p.ImportPath)
		}
	}
	return nil
}

// pkg is what `go list -json` reports of a package. IgnoredGoFiles are those that build constraints exclude.
type pkg struct {
	ImportPath, Dir                                              string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles, IgnoredGoFiles []string
}

// list returns the packages of the import paths.
func list(ctx context.Context, paths []string) ([]pkg, error) {
	if len(paths) == 0 {
		return nil, errors.New("no packages given")
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles"}, paths...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var packages []pkg
	decoder := json.NewDecoder(out)
	for {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		packages = append(packages, p)
	}
	return packages, cmd.Wait()
}
