package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCreateSymlinks(t *testing.T) {
	tests := map[string]struct {
		prepare func(bundle)
		at      string
		lies    string
		err     string
	}{
		"in a new folder":       {func(bundle) {}, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"there already":         {func(b bundle) { b.link("libcuda.so.580", "/usr/lib64/libcuda.so.1") }, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"over another link":     {func(b bundle) { b.link("libcuda.so.470", "/usr/lib64/libcuda.so.1") }, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"over a longer link":    {func(b bundle) { b.link("libcuda.so.580.65", "/usr/lib64/libcuda.so.1") }, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"over a link to itself": {func(b bundle) { b.link("libcuda.so.1", "/usr/lib64/libcuda.so.1") }, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"over a file":           {func(b bundle) { b.write("/usr/lib64/libcuda.so.1", "old") }, "/usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"over a folder":         {func(b bundle) { b.write("/usr/lib64/libcuda.so.1/x", "") }, "/usr/lib64/libcuda.so.1", "", "is a directory"},
		"below a file":          {func(b bundle) { b.write("/usr/lib64", "") }, "/usr/lib64/libcuda.so.1", "", "not a directory"},
		"through a link":        {func(b bundle) { b.link("usr/lib64", "/lib64"); b.folder("/usr/lib64") }, "/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"through an absolute":   {func(b bundle) { b.link("/usr/lib64", "/lib64"); b.folder("/usr/lib64") }, "/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"at a relative path":    {func(bundle) {}, "usr/lib64/libcuda.so.1", "usr/lib64/libcuda.so.1", ""},
		"above the root":        {func(bundle) {}, "/../../../lib64/libcuda.so.1", "lib64/libcuda.so.1", ""},
		"at the root":           {func(bundle) {}, "/", "", "exists"},
		"at the relative root":  {func(bundle) {}, ".", "", "exists"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			test.prepare(b)
			log, err := b.try(CreateSymlinks, "--link", "libcuda.so.580::"+test.at)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || log != "" {
				t.Fatalf("%v\n%s", err, log)
			}
			if got, err := os.Readlink(filepath.Join(b.root, test.lies)); got != "libcuda.so.580" {
				t.Errorf("%s: got %q, %v, want a link to libcuda.so.580", test.lies, got, err)
			}
			for path := range tree(t, b.root) {
				if strings.Contains(path, "tessera") {
					t.Errorf("%s was left behind", path)
				}
			}
		})
	}
}

func TestCreateSymlinksMakesAll(t *testing.T) {
	b := newBundle(t)
	b.run(CreateSymlinks, "--link", "libcuda.so.580::/lib/libcuda.so.1", "--link", "libcuda.so.1::/lib/libcuda.so", "--link", "../libcuda.so.1::/lib/gbm/x.so")
	got := tree(t, b.root)
	for path, want := range map[string]string{"lib/libcuda.so.1": "-> libcuda.so.580", "lib/libcuda.so": "-> libcuda.so.1", "lib/gbm/x.so": "-> ../libcuda.so.1"} {
		if got[path] != want {
			t.Errorf("%s: got %q, want %q", path, got[path], want)
		}
	}
}

func TestMalformedLinks(t *testing.T) {
	for _, link := range []string{"", "libcuda.so", "::/usr/lib64/libcuda.so", "libcuda.so.1::", "::"} {
		b := newBundle(t)
		if _, err := b.try(CreateSymlinks, "--link", link); err == nil || !strings.Contains(err.Error(), "must be TARGET::PATH") {
			t.Errorf("%q: %v", link, err)
		}
	}
}
