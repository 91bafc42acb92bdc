package main

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMutants checks with a small package which places get mutants, that the program with all of them does the same as the original, and that the mutants
// survive whose effects its test does not look at.
func TestMutants(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mutants run in namespaces of their own, which requires root")
	}
	const folder = "./testdata/toy"
	p, err := find(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	points, err := scan(p.Dir, p.GoFiles)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, at := range points {
		kinds = append(kinds, at.Kind)
	}
	slices.Sort(kinds)
	want := []string{
		"&& becomes ||", "< becomes <=", "< becomes <=", "== becomes !=", "> becomes >=", "negates the condition", "negates the condition",
		"removes the assignment", "removes the assignment", "removes the call", "removes the deferred call", "returns no error", "returns no error",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	var survivors []string
	o := options{number: len(points), survived: func(_ string, at point) { survivors = append(survivors, at.Kind+": "+at.Text) }}
	if _, err := o.test(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	slices.Sort(survivors)
	if diff := cmp.Diff([]string{"removes the assignment: calls += n", "removes the call: add(1)", "removes the deferred call: defer count()"}, survivors); diff != "" {
		t.Error(diff)
	}
}
