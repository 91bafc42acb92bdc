package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
)

func model(name string, profiles ...string) catalog.Model {
	m := catalog.Model{Name: name}
	for _, p := range profiles {
		m.Profiles = append(m.Profiles, catalog.Profile{Name: p})
	}
	return m
}

func TestProfileClasses(t *testing.T) {
	got, err := profileClasses([]catalog.Model{
		model("h100", "1g.10gb+me", "1g.10gb"),
		model("a100", "1g.10gb"),
		model("rtx", "1g.24gb-me", "1g.24gb+me.all"),
		model("t4"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []class{
		{"mig-1g.10gb.me.tessera.dev", "nvidia.com/mig-1g.10gb.me", "1g.10gb+me", []string{"h100"}},
		{"mig-1g.10gb.tessera.dev", "nvidia.com/mig-1g.10gb", "1g.10gb", []string{"h100", "a100"}},
		{"mig-1g.24gb.me.all.tessera.dev", "nvidia.com/mig-1g.24gb.me.all", "1g.24gb+me.all", []string{"rtx"}},
		{"mig-1g.24gb.no-me.tessera.dev", "nvidia.com/mig-1g.24gb-me", "1g.24gb-me", []string{"rtx"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(class{})); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
}

func TestProfileClassesRefuseOneNameForTwo(t *testing.T) {
	_, err := profileClasses([]catalog.Model{model("x", "1g.10gb+me", "1g.10gb.me")})
	if err == nil || !strings.Contains(err.Error(), "both would be mig-1g.10gb.me.tessera.dev") {
		t.Errorf("error: got %v, want one that names the class", err)
	}
}
