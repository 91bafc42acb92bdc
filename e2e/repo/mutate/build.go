package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pkg is what `go list -json` reports of a package.
type pkg struct {
	Dir, Name string
	GoFiles   []string
}

func find(ctx context.Context, name string) (pkg, error) {
	var p pkg
	output, err := exec.CommandContext(ctx, "go", "list", "-json=Dir,Name,GoFiles", name).Output()
	if err != nil {
		return p, fmt.Errorf("go list: %w", err)
	}
	return p, json.Unmarshal(output, &p)
}

// none is the number of no mutant.
const none = -1

// variable of the environment has the number of the mutant that runs.
const variable = "TESSERA_MUTANT"

// selector is the file that is added to the package.
const selector = `package %s

import (
	mutantOS "os"
	mutantNumber "strconv"
)

var mutantThatRuns, _ = mutantNumber.Atoi(mutantOS.Getenv("` + variable + `"))

func isMutant(number int) bool { return number == mutantThatRuns }
`

// build compiles the tests of the package with the mutants of all points and returns the path of the binary.
func (p pkg) build(ctx context.Context, folder string, points []point) (string, error) {
	replaced := map[string]string{}
	write := func(name, text string) error {
		path := filepath.Join(folder, name)
		replaced[filepath.Join(p.Dir, name)] = path
		return os.WriteFile(path, []byte(text), 0o600)
	}
	for _, name := range p.GoFiles {
		source, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return "", err
		}
		if err := write(name, apply(string(source), name, points)); err != nil {
			return "", err
		}
	}
	if err := write("mutant_selector.go", fmt.Sprintf(selector, p.Name)); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	file, binary := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "test")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, p.Dir)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile with mutants: %w\n%s", err, output)
	}
	return binary, nil
}

// apply returns the source of a file with the mutants of its points.
func apply(source, name string, points []point) string {
	type insertion struct {
		at   int
		text string
	}
	var before, after []insertion
	for i, p := range points {
		if p.File == name {
			number := fmt.Sprintf("isMutant(%d)", i)
			before = append(before, insertion{p.from, strings.ReplaceAll(p.before, placeholder, number)})
			after = append(after, insertion{p.to, p.after})
		}
	}
	// What ends at a position ends before anything begins there. Points are listed before those inside them, so that of several that end at a position
	// the last one ends first.
	slices.Reverse(after)
	all := append(after, before...)
	slices.SortStableFunc(all, func(a, b insertion) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	done := 0
	for _, i := range all {
		text.WriteString(source[done:i.at])
		text.WriteString(i.text)
		done = i.at
	}
	text.WriteString(source[done:])
	return text.String()
}

// confined runs a program of a folder where it can change temporary folders only, with limited memory. Its arguments are the folder with the program, the
// folder of temporary files, the name of the program, and its arguments.
const confined = `set -e
mount --make-rprivate /
awk '{print $5}' /proc/self/mountinfo | grep -vxE '/(proc|dev|sys/fs/cgroup)(/.*)?' | sort -u | while read -r at; do mount -o remount,bind,ro "$at"; done
for at in /run /dev/shm; do mount -t tmpfs mutate $at; done
mkdir /run/mutate && mount --bind "$0" /run/mutate && mount -t tmpfs mutate "$1"
ulimit -v 16777216
exec "/run/mutate/$2" "${@:3}"`

// start runs the tests with a mutant until the first of them fails, which is an error.
func (p pkg) start(ctx context.Context, binary string, mutant int, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", confined,
		filepath.Dir(binary), os.TempDir(), filepath.Base(binary), "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(mutant))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	return output.Bytes(), err
}
