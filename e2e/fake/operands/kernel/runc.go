package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// runc executes runc with the arguments. A container that it creates gets the hook `kernel group` before all others.
func runc(kernel string, args []string) error {
	at := slices.Index(args, "--bundle")
	if slices.Contains(args, "create") && at >= 0 && at+1 < len(args) {
		if err := addHook(filepath.Join(args[at+1], "config.json"), oci.Hook{Path: kernel, Args: []string{"kernel", "group"}}); err != nil {
			return err
		}
	}
	// The file in this folder executes the present program.
	var folders []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if folder != "/usr/local/bin" {
			folders = append(folders, folder)
		}
	}
	if err := os.Setenv("PATH", strings.Join(folders, string(filepath.ListSeparator))); err != nil {
		return err
	}
	program, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return unix.Exec(program, append([]string{"runc"}, args...), os.Environ())
}

// addHook adds a createRuntime hook to a container's configuration.
func addHook(file string, hook oci.Hook) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var spec oci.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if spec.Hooks == nil {
		spec.Hooks = &oci.Hooks{}
	}
	spec.Hooks.CreateRuntime = slices.Insert(spec.Hooks.CreateRuntime, 0, hook)
	if text, err = json.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
