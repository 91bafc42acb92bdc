package main

import (
	"bytes"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
)

func TestCommandChecksBeforeItRuns(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, errNoConfig) {
		t.Errorf("got %v, want %v", err, errNoConfig)
	}
}

func TestVersionNamesBothSchedulers(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: "v1.2.3"}, Deps: []*debug.Module{
		{Path: "k8s.io/api", Version: "v0.37.2"}, {Path: "k8s.io/kubernetes", Version: "v1.37.0"},
	}}
	if got, want := versionText(info, true), "tessera-scheduler v1.2.3 go1.26, kube-scheduler v1.37.0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--version"})
	// The flag is one of the process.
	t.Cleanup(func() {
		if err := cmd.Flag("version").Value.Set("false"); err != nil {
			t.Error(err)
		}
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "tessera-scheduler ") {
		t.Errorf("--version prints %q, %v", out.String(), err)
	}
}
