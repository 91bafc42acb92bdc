package machine

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	got := unit(Service{
		Name: "kubelet", Args: []string{"kubelet", "--labels=a=1,b=50%"}, Needs: []string{"import", "hardware"}, Ready: Probe{URL: "http://127.0.0.1/healthz"},
	})
	for _, want := range []string{
		"Wants=import.service hardware.service", "After=import.service hardware.service",
		`ExecStart=/usr/bin/env "kubelet" "--labels=a=1,b=50%%"`,
		`ExecStartPost=` + guestProgram + ` probe "{\"url\":\"http://127.0.0.1/healthz\"}"`,
		"KillMode=process", "Restart=always",
	} {
		if !slices.Contains(strings.Split(got, "\n"), want) {
			t.Errorf("the unit lacks %q:\n%s", want, got)
		}
	}
	once := unit(Service{Name: "import", Args: []string{"sh", "-c", "set -e\necho \"$x\""}, Ready: Probe{Exit: true}})
	for _, want := range []string{"Type=oneshot", "RemainAfterExit=yes", `ExecStart=/usr/bin/env "sh" "-c" "set -e\necho \"$$x\""`} {
		if !slices.Contains(strings.Split(once, "\n"), want) {
			t.Errorf("the unit lacks %q:\n%s", want, once)
		}
	}
}

// TestParseUnits reads what systemd 252 has printed.
func TestParseUnits(t *testing.T) {
	t.Parallel()
	got, err := parseUnits(`MainPID=825
NRestarts=0
Id=kubelet.service
ActiveState=active

MainPID=0
NRestarts=3
Id=image-import.service
ActiveState=activating
`)
	want := []ServiceStatus{{Name: "image-import", State: Starting, Restarts: 3}, {Name: "kubelet", PID: 825, State: Ready}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if _, err := parseUnits("Failed to connect to bus"); err == nil {
		t.Error("an error message was read as services")
	}
}

func TestBootScript(t *testing.T) {
	t.Parallel()
	v := Virtual{Address: netip.MustParsePrefix("10.64.0.10/24"), Gateway: netip.MustParseAddr("10.64.0.1")}
	script := v.bootScript(Spec{
		Name:     "vm1",
		Mounts:   []Mount{{Source: "/a", Target: "/run/gpu"}, {Source: "/b", Target: "/opt/b"}},
		Settings: []File{{Path: "/proc/sys/net/ipv4/ip_forward", Content: []byte("1\n")}},
	})
	for _, want := range []string{
		"ip address replace 10.64.0.10/24 dev eth0", "ip route replace default via 10.64.0.1",
		"mount --bind " + persistent + "/run/gpu /run/gpu", "printf %s '1' >/proc/sys/net/ipv4/ip_forward",
	} {
		if !slices.Contains(strings.Split(script, "\n"), want) {
			t.Errorf("the script lacks %q:\n%s", want, script)
		}
	}
	if strings.Contains(script, "/opt/b") {
		t.Error("a folder that persists was mounted")
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	got, err := functions([]string{"0000:1b:00.0", "0000:43:00.0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"pxb-pcie,id=root0,bus=pcie.0,bus_nr=26", "virtio-rng-pci,bus=port1,disable-legacy=on,iommu_platform=on", "pxb-pcie,id=root1,bus=pcie.0,bus_nr=66",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("QEMU's arguments lack %s: %v", want, got)
		}
	}
	for _, address := range []string{"", "1b:00.0", "0000:01:00.0", "0000:1b:01.0"} {
		if _, err := functions([]string{address}); err == nil {
			t.Errorf("%q was accepted", address)
		}
	}
}
