package ldso

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConf(t *testing.T) {
	text := `# Multiarch support
/usr/local/lib/x86_64-linux-gnu/
  /opt/with space/lib   # a comment
include /etc/ld.so.conf.d/*.conf	/etc/more.conf
hwcap 1 nosegneg
/usr/X11R6/lib=libc5

relative/lib
//
/last`
	want := []Line{
		{Folder: "/usr/local/lib/x86_64-linux-gnu"},
		{Folder: "/opt/with space/lib"},
		{Include: "/etc/ld.so.conf.d/*.conf"},
		{Include: "/etc/more.conf"},
		{Folder: "/usr/X11R6/lib"},
		{Folder: "/"},
		{Folder: "/last"},
	}
	if diff := cmp.Diff(want, ParseConf(text)); diff != "" {
		t.Errorf("ParseConf (-want +got):\n%s", diff)
	}
}

func TestIsLibraryName(t *testing.T) {
	for name, want := range map[string]bool{
		"libcuda.so.1": true, "libcuda.so": true, "ld-linux-x86-64.so.2": true, "ld64.so.1": true,
		"cuda.so": false, "libcuda.a": false, "lib": false, "libc\x01.so": false, "libü.so": false,
	} {
		if got := IsLibraryName(name); got != want {
			t.Errorf("IsLibraryName(%q): got %v, want %v", name, got, want)
		}
	}
}
