package hook

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// An image at a limit of the linker's configuration is accepted, one above it is refused.
func TestLimitsOfTheConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		limit   int
		prepare func(b bundle, number int)
	}{
		"folders": {maxConfLines, func(b bundle, number int) {
			b.write(confPath, strings.Repeat("/opt/lib\n", number))
		}},
		"files": {maxConfFiles, func(b bundle, number int) {
			b.write(confPath, "include d/*.conf\n")
			for i := range number - 1 {
				b.write(fmt.Sprintf("/etc/d/%d.conf", i), "")
			}
		}},
		"files in each other": {maxConfDepth, func(b bundle, number int) {
			b.write(confPath, "include 1.conf\n")
			for i := range number {
				b.write(fmt.Sprintf("/etc/%d.conf", i+1), fmt.Sprintf("include %d.conf\n", i+2))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			test.prepare(b, test.limit)
			if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err != nil {
				t.Errorf("%d: %v", test.limit, err)
			}
			b = newBundle(t)
			test.prepare(b, test.limit+1)
			if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), confPath) {
				t.Errorf("%d: got %v, want an error that names %s", test.limit+1, err, confPath)
			}
		})
	}
}

// The drop-in of the compatibility libraries is bounded as well.
func TestLargeCompatDropIn(t *testing.T) {
	b := newBundle(t)
	b.write(compatDropIn, strings.Repeat("#", maxConf+1))
	if _, err := b.try(UpdateLDCache, "--folder", "/usr/lib64"); err == nil || !strings.Contains(err.Error(), compatDropIn) {
		t.Errorf("got %v, want an error that names %s", err, compatDropIn)
	}
}

// The processor time counts from the moment when the root was opened.
func TestProcessorTimeIsLimited(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now, err := processorTime()
	if err != nil || now <= 0 {
		t.Fatalf("the thread has spent %v, error %v", now, err)
	}
	if err := (root{began: now}).checkTime(); err != nil {
		t.Errorf("at the start: %v", err)
	}
	if err := (root{began: now - maxProcessorTime - 1}).checkTime(); err == nil || !strings.Contains(err.Error(), "processor time") {
		t.Errorf("after %v: got %v, want an error", maxProcessorTime, err)
	}
}
