package userland

import (
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
			if diff := cmp.Diff(test.want, sharedObjects(test.listing)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
