package userland

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSharedObjects(t *testing.T) {
	tests := []struct {
		name, listing string
		want          []string
	}{
		{
			"Debian 12",
			"/lib\n/lib/x86_64-linux-gnu\n/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n/lib/x86_64-linux-gnu/libc.so.6\n" +
				"/usr/lib/x86_64-linux-gnu/gconv/libCNS.so\n/lib64/ld-linux-x86-64.so.2\n/usr/share/doc/libc6/NEWS.gz\n",
			[]string{"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"},
		},
		{
			"Ubuntu 24.04, merged",
			"/usr/lib/x86_64-linux-gnu/libm.so.6\n/usr/lib64/ld-linux-x86-64.so.2\n/etc/ld.so.conf.d/x86_64-linux-gnu.conf\n",
			[]string{"/usr/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib64/ld-linux-x86-64.so.2"},
		},
		{
			"arm64",
			"/lib/aarch64-linux-gnu/libc.so.6\n/lib/ld-linux-aarch64.so.1\n",
			[]string{"/lib/aarch64-linux-gnu/libc.so.6", "/lib/ld-linux-aarch64.so.1"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sharedObjects(strings.Split(test.listing, "\n"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The record of a package has the fields by which scanners find vulnerabilities.
func TestRecordOfAPackage(t *testing.T) {
	file := debianPackage{name: "libc6", architecture: "arm64", version: "2.36-8", source: "glibc", sourceVersion: "2.36-8", maintainer: "a", summary: "b"}.record()
	const want = "Package: libc6\nStatus: install ok installed\nArchitecture: arm64\nSource: glibc (2.36-8)\nVersion: 2.36-8\nMaintainer: a\nDescription: b\n"
	if file.Path != "/var/lib/dpkg/status.d/libc6" || string(file.Content) != want {
		t.Errorf("%s: %s", file.Path, file.Content)
	}
}

// The C library of each architecture is at the paths where its programs expect it, with its record and that of the distribution.
func TestGlibcOfEachArchitecture(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("needs the packages of Debian or Ubuntu: there is no dpkg-query here")
	}
	for architecture, at := range platforms {
		library, err := Glibc(t.Context(), architecture)
		if err != nil && architecture != runtime.GOARCH {
			t.Logf("the C library for %s is not installed: %v", architecture, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		contents := map[string]string{}
		for _, file := range library.Files {
			contents[file.Path] = string(file.Content)
		}
		for _, want := range []string{"/usr/lib/" + at.triplet + "/libc.so.6", at.loader, "/etc/os-release"} {
			if _, found := contents[want]; !found {
				t.Errorf("%s: %s is missing", architecture, want)
			}
		}
		record := contents["/var/lib/dpkg/status.d/libc6"]
		for _, line := range []string{"Package: libc6\n", "\nArchitecture: " + architecture + "\n", "\nSource: glibc (", "\nVersion: " + library.Version + "\n"} {
			if !strings.Contains(record, line) || strings.Contains(line, "cross") {
				t.Errorf("%s: record %q lacks %q", architecture, record, line)
			}
		}
	}
	if _, err := Glibc(t.Context(), "riscv64"); err == nil {
		t.Error("riscv64 has a C library")
	}
}
