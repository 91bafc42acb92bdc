package containerd

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/installer/host"
)

// disk is files by path.
type disk map[string]string

func (d disk) Read(path string) ([]byte, error) {
	if text, there := d[path]; there {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

func (d disk) Glob(pattern string) ([]string, error) {
	var matches []string
	for _, path := range slices.Sorted(maps.Keys(d)) {
		if matched, err := filepath.Match(pattern, path); err != nil {
			return nil, err
		} else if matched {
			matches = append(matches, path)
		}
	}
	return matches, nil
}

const main = "/etc/containerd/config.toml"

func TestLoad(t *testing.T) {
	section := func(key string) string { return "[plugins.\"" + CRI + "\"]\n" + key + "\n" }
	tests := map[string]struct {
		files disk
		want  Config
		fails string
	}{
		"no file at all": {disk{}, Config{Version: 1, Folders: []string{"/etc/containerd"}}, ""},
		"one file": {disk{main: "version = 2\n" + section("a = 1")},
			Config{Version: 2, Section: map[string]any{"a": int64(1)}, Owner: main, Loaded: []string{main}, Folders: []string{"/etc/containerd"}}, ""},
		"a section is replaced as a whole, by the last file": {
			disk{main: "version = 2\nimports = ['/etc/containerd/conf.d/*.toml', 'extra.toml']\n" + section("a = 1"),
				"/etc/containerd/conf.d/10.toml": section("b = 1"), "/etc/containerd/conf.d/20.toml": section("c = 1"), "/etc/containerd/extra.toml": ""},
			Config{Version: 2, Section: map[string]any{"c": int64(1)}, Owner: "/etc/containerd/conf.d/20.toml",
				Loaded:  []string{main, "/etc/containerd/conf.d/10.toml", "/etc/containerd/conf.d/20.toml", "/etc/containerd/extra.toml"},
				Folders: []string{"/etc/containerd", "/etc/containerd/conf.d"}}, ""},
		"breadth first, and no circles": {
			disk{main: "version = 2\nimports = ['a.toml', 'b.toml']\n", "/etc/containerd/a.toml": "imports = ['c.toml', 'config.toml']\n",
				"/etc/containerd/b.toml": section("b = 1"), "/etc/containerd/c.toml": section("c = 1")},
			Config{Version: 2, Section: map[string]any{"c": int64(1)}, Owner: "/etc/containerd/c.toml",
				Loaded:  []string{main, "/etc/containerd/a.toml", "/etc/containerd/b.toml", "/etc/containerd/c.toml"},
				Folders: []string{"/etc/containerd"}}, ""},
		"version 1":             {disk{main: "[plugins.cri]\na = 1\n"}, Config{Version: 1, Section: map[string]any{"a": int64(1)}, Owner: main, Loaded: []string{main}, Folders: []string{"/etc/containerd"}}, ""},
		"broken":                {files: disk{main: "version = \n"}, fails: main},
		"a broken import":       {files: disk{main: "version = 2\nimports = ['x.toml']\n", "/etc/containerd/x.toml": "["}, fails: "x.toml"},
		"an import that is not": {files: disk{main: "version = 2\nimports = ['x.toml']\n"}, fails: "not exist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Load(test.files, main)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v lacks %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
	var failure *host.Failure
	if _, err := Load(disk{main: "x"}, main); !errors.As(err, &failure) || failure.Reason != ConfigInvalid {
		t.Errorf("broken TOML: %v", err)
	}
}

func TestCDI(t *testing.T) {
	tests := []struct {
		section map[string]any
		folder  string
		want    bool
		folders []any
	}{
		{nil, "/var/run/cdi", false, []any{"/etc/cdi", "/var/run/cdi"}},
		{map[string]any{"enable_cdi": true}, "/var/run/cdi", true, []any{"/etc/cdi", "/var/run/cdi"}},
		{map[string]any{"enable_cdi": false}, "/var/run/cdi", false, []any{"/etc/cdi", "/var/run/cdi"}},
		{map[string]any{"enable_cdi": true, "cdi_spec_dirs": []any{"/etc/cdi"}}, "/var/run/cdi/", false, []any{"/etc/cdi", "/var/run/cdi"}},
		{map[string]any{"enable_cdi": true, "cdi_spec_dirs": []any{"/etc/cdi", "/x/"}}, "/x", true, []any{"/etc/cdi", "/x"}},
	}
	for _, test := range tests {
		c := Config{Section: test.section}
		if got := c.CDI(test.folder); got != test.want {
			t.Errorf("%v: CDI %t, want %t", test.section, got, test.want)
		}
		with := c.WithCDI(test.folder)
		if diff := cmp.Diff(test.folders, with["cdi_spec_dirs"]); diff != "" || !(Config{Section: with}).CDI(test.folder) {
			t.Errorf("%v with CDI (-want +got):\n%s", test.section, diff)
		}
	}
	section := map[string]any{"sandbox_image": "x"}
	(Config{Section: section}).WithCDI("/var/run/cdi")
	if len(section) != 1 {
		t.Errorf("the section that was read has become %v", section)
	}
}

const pattern = "/etc/containerd/conf.d/99-tessera-*.toml"

func TestImportAndRemoveImport(t *testing.T) {
	const tables = "\n# a comment\n[grpc]\n  address = \"/run/containerd/containerd.sock\" # ]\n[plugins.\"x.y.z.v1\"]\nimports = [\"not these\"]\n"
	tests := map[string]struct{ before, want string }{
		"no imports":         {"version = 2\n" + tables, mark + "imports = [\"" + pattern + "\"]\nversion = 2\n" + tables},
		"empty imports":      {"imports = []\nversion = 2\n" + tables, "imports = [\"" + pattern + "\"]\nversion = 2\n" + tables},
		"one":                {"version = 2\nimports = [\"/a/*.toml\"] # why\n" + tables, "version = 2\nimports = [\"/a/*.toml\", \"" + pattern + "\"] # why\n" + tables},
		"a comma at the end": {"version = 2\nimports = [\"/a\",]\n" + tables, "version = 2\nimports = [\"/a\", \"" + pattern + "\"]\n" + tables},
		"lines and comments": {"version = 2\nimports = [ # ] \"\n  '/a]b', # \"x\"\n  \"/c\\\"d\" # last ]\n]\n" + tables,
			"version = 2\nimports = [ # ] \"\n  '/a]b', # \"x\"\n  \"/c\\\"d\", \"" + pattern + "\" # last ]\n]\n" + tables},
		"no file":              {"", "version = 2\n" + mark + "imports = [\"" + pattern + "\"]\n"},
		"windows' line ends":   {"version = 2\r\n[grpc]\r\n", mark + "imports = [\"" + pattern + "\"]\nversion = 2\r\n[grpc]\r\n"},
		"no end of last line":  {"version = 2", mark + "imports = [\"" + pattern + "\"]\nversion = 2"},
		"imports after others": {"root = \"/x\"\n  imports=['/a']\n", "root = \"/x\"\n  imports=['/a', \"" + pattern + "\"]\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Import(main, []byte(test.before), pattern)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("imported (-want +got):\n%s", diff)
			}
			back, err := Forget(main, got, pattern)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(test.before, "\"/a\",]", "\"/a\",]", 1)
			if name == "a comma at the end" {
				want = strings.Replace(want, "\",]", "\"]", 1)
			}
			if string(back) != want {
				t.Errorf("removed (-want +got):\n%s", cmp.Diff(want, string(back)))
			}
			if again, err := Forget(main, back, pattern); err != nil || string(again) != string(back) {
				t.Errorf("removed twice: %q, error %v", again, err)
			}
		})
	}
}

func TestImportRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"broken":           "version = ",
		"an odd spelling":  "version = 2\n\"\\u0069mports\" = [\"/a\"]\n",
		"a string as list": "imports = \"/a\"\n",
	} {
		if got, err := Import(main, []byte(text), pattern); err == nil {
			t.Errorf("%s: became %q", name, got)
		}
	}
}

func TestDropIn(t *testing.T) {
	section := map[string]any{
		"sandbox_image": "registry.k8s.io/pause:3.10", "enable_cdi": true, "cdi_spec_dirs": []any{"/etc/cdi"}, "stats_collect_period": int64(10),
		"containerd": map[string]any{"runtimes": map[string]any{"runc": map[string]any{"options": map[string]any{"SystemdCgroup": true}}, "a.b \"c\"": map[string]any{}}},
	}
	text, err := DropIn("# hello\n", section)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DropIn("# hello\n", section)
	if err != nil || string(again) != string(text) {
		t.Errorf("two drop-ins of one section differ, error %v", err)
	}
	got, err := Load(disk{main: string(text)}, main)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(section, got.Section); diff != "" {
		t.Errorf("section (-want +got):\n%s", diff)
	}
}

func TestOverlayAndHost(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"real/conf.d/a.toml", "real/conf.d/b.toml", "real/conf.d/c.txt"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/real", filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	files := OnHost{Roots: host.Roots{Host: root}}
	overlay := Overlay{Files: files, Changed: map[string][]byte{"/etc/conf.d/b.toml": nil, "/etc/conf.d/d.toml": []byte("d"), "/etc/other.toml": []byte("x")}}
	got, err := overlay.Glob("/etc/conf.d/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/etc/conf.d/a.toml", "/etc/conf.d/d.toml"}, got); diff != "" {
		t.Errorf("glob (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"/etc/conf.d/a.toml": "real/conf.d/a.toml", "/etc/conf.d/d.toml": "d", "/etc/conf.d/b.toml": ""} {
		text, err := overlay.Read(path)
		if string(text) != want || (want == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, error %v", path, text, err)
		}
	}
}
