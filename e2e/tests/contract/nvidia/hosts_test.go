package nvidia

import (
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
	"github.com/tessera-gpu/tessera/installer/controller/nodestate"
	"github.com/tessera-gpu/tessera/installer/phase"
)

// adapter is a machine with a Mellanox network adapter, and the kernel's own driver of it.
func adapter(more map[string]string) map[string]string {
	files := map[string]string{
		"sys/bus/pci/devices/0000:5e:00.0/vendor": "0x15b3\n", "sys/module/mlx5_core/refcnt": "0\n", "sys/module/ib_core/refcnt": "0\n",
		"sys/module/ib_core/srcversion": "inbox\n",
	}
	for path, text := range more {
		files[path] = text
	}
	return files
}

// mofedReady is the file by which a network driver container reports that its driver is loaded.
const mofedReady = "run/mellanox/drivers/.driver-ready"

// networkContainer is what a network driver container leaves on a machine.
func networkContainer() map[string]string {
	return map[string]string{
		"sys/module/ib_core/srcversion": "mofed\n", mofedReady: "", "run/mellanox/drivers/usr/src/ofa_kernel/flavor": "mofed",
	}
}

const peermem = "nvidia-peermem-ctr"

// rdma enables nvidia_peermem.
func (s *scene) rdma(host bool) {
	s.spec.RDMA.Enabled = new(true)
	s.spec.RDMA.UseHostMOFED = host
}

// connected reports whether nvidia_peermem is loaded.
func (s *scene) connected() bool { return slices.Contains(s.machine.Modules(), "nvidia_peermem") }

// upConnected starts a pod with the network driver of a container, and waits until nvidia_peermem is loaded.
func (s *scene) upConnected() (*machine.Pod, error) {
	s.rdma(false)
	pod, err := s.up(version)
	if err != nil {
		return nil, err
	}
	return pod, s.until("nvidia_peermem is loaded", s.connected)
}

func rdmaCases() []contractCase {
	host := map[string]string{"sys/module/ib_core/srcversion": "mofed\n", "usr/src/ofa_kernel/flavor": "mofed"}
	return []contractCase{
		{name: "RDMA without a network adapter", where: inContainers, run: func(s *scene) error {
			s.rdma(false)
			_, err := s.up(version)
			return errors.Join(err, s.loaded(), expect(!s.connected(), "nvidia_peermem is loaded"))
		}},
		{name: "RDMA with a network driver container", where: compiled, files: adapter(networkContainer()), run: func(s *scene) error {
			pod, err := s.upConnected()
			if err != nil {
				return err
			}
			if err := s.stop(pod); err != nil || s.name != "rhel9" {
				return errors.Join(err, s.gone())
			}
			// The entry point removes nvidia before nvidia_peermem, which uses it (rhel9/nvidia-driver:533-541), so nvidia stays. The next pod's unload removes it.
			if err := expect(slices.Contains(s.machine.Modules(), "nvidia"), "nvidia does not stay"); err != nil {
				return err
			}
			_, err = s.up(older)
			return errors.Join(err, s.loaded())
		}},
		{name: "RDMA with the host's network driver", where: compiled, files: adapter(host), run: func(s *scene) error {
			s.rdma(true)
			if _, err := s.up(version); err != nil {
				return err
			}
			return s.until("nvidia_peermem is loaded", s.connected)
		}},
		{name: "RDMA with a network driver that is loaded later", where: compiled, files: adapter(nil), run: networkLater},
		{name: "RDMA without a network driver", where: compiled, files: adapter(nil), run: func(s *scene) error {
			s.rdma(false)
			s.spec.StartupTimeout = &metav1.Duration{Duration: time.Second}
			_, err := s.up(version)
			return expect(err != nil && strings.Contains(err.Error(), "NetworkDriverMissing"), "not reported: %v", err)
		}},
		{name: "replacement of the network driver", where: compiled, files: adapter(networkContainer()), run: networkReplaced},
	}
}

// stop terminates a pod with sidecars: that of nvidia_peermem sets no trap before it sleeps, and ends by the signal.
func (s *scene) stop(pod *machine.Pod) error {
	_, err := pod.Stop()
	return err
}

// networkLater checks that the driver is compiled with the headers of a network driver container that starts after the driver's pod.
func networkLater(s *scene) error {
	s.rdma(false)
	pod, err := s.pod(version)
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() { started <- s.ready(pod) }()
	err = s.until("the pod waits for the network driver", func() bool {
		return s.machine.Exists("/run/mellanox/drivers") || pod.InitContainer() == "network-driver"
	})
	if err != nil {
		return err
	}
	files := networkContainer()
	for path, text := range files {
		if path == mofedReady {
			continue // the last one
		}
		if err := s.machine.Write(path, text); err != nil {
			return err
		}
	}
	if err := s.machine.Write(mofedReady, ""); err != nil {
		return err
	}
	if err := <-started; err != nil {
		return err
	}
	return s.until("nvidia_peermem is loaded", s.connected)
}

// networkReplaced checks that nvidia_peermem is loaded again after a network driver container has unloaded it: the liveness probe fails, and kubelet
// restarts the container.
func networkReplaced(s *scene) error {
	pod, err := s.upConnected()
	if err != nil {
		return err
	}
	// Until then it would load the module itself.
	if err := s.until("the sidecar has found the module", func() bool { return strings.Contains(pod.Output(peermem), "nvidia-peermem module") }); err != nil {
		return err
	}
	if text, err := pod.Live(peermem); err != nil {
		return errors.Join(err, errors.New(text))
	}
	if text, err := pod.Exec(s.main(), "rmmod", "nvidia-peermem"); err != nil {
		return errors.Join(err, errors.New(text))
	}
	if _, err := pod.Live(peermem); err == nil {
		return errors.New("the liveness probe succeeds without nvidia_peermem, and nothing loads it again")
	}
	if err := errors.Join(pod.Kill(peermem), pod.Restart(peermem)); err != nil {
		return err
	}
	return s.until("nvidia_peermem is loaded again", s.connected)
}

func hostCases() []contractCase {
	return []contractCase{
		{
			name: "no GPU that the driver supports", where: func(v variant) bool { return strings.HasPrefix(v.name, "rhel9") }, files: map[string]string{"sys/bus/pci/devices/0000:3b:00.0/class": "0x020000\n"},
			run: func(s *scene) error {
				pod, err := s.started(version)
				if err != nil {
					return err
				}
				if err := s.until("the container ends", func() bool { return pod.Ended(s.main()) }); err != nil {
					return err
				}
				got := nodestate.ObservePod(pod.Failure(s.main()))
				const cause = "container nvidia-driver-ctr exited with code 1: modprobe: ERROR: could not insert 'nvidia': No such device; no GPU that this driver supports"
				return errors.Join(s.gone(), expect(got.Reason == phase.ReasonNoSupportedGPU && strings.HasPrefix(got.Message, cause), "the node's reason is %s: %s", got.Reason, got.Message))
			},
		},
		{
			name: "no GPU and no failure", where: func(v variant) bool { return strings.HasPrefix(v.name, "ubuntu") },
			files: map[string]string{"sys/bus/pci/devices/0000:3b:00.0/class": "0x020000\n"},
			run: func(s *scene) error {
				pod, err := s.started(version)
				if err != nil {
					return err
				}
				waits := func() bool { return strings.Contains(pod.Output(s.main()), "now waiting for signal") }
				if err := s.until("the container waits", waits); err != nil {
					return err
				}
				text, err := pod.Probe(s.main(), pod.StartupProbe(s.main()))
				return errors.Join(expect(err != nil && text == "the module nvidia is not loaded\n", "the startup probe prints %q: %v", text, err), s.down(pod), s.gone())
			},
		},
		{
			name: "kernel without memory hotplug", run: func(s *scene) error {
				if err := s.machine.Remove("sys/devices/system/memory"); err != nil {
					return err
				}
				_, err := s.up(version)
				return errors.Join(err, s.loaded())
			},
		},
		{
			name: "SELinux", where: func(v variant) bool { return strings.HasPrefix(v.name, "rhel9") }, files: map[string]string{"sys/fs/selinux/": ""},
			run: func(s *scene) error {
				if err := s.machine.MountSELinux(); err != nil {
					return err
				}
				if _, err := s.up(version); err != nil {
					return err
				}
				calls, err := s.machine.Calls()
				labels := slices.ContainsFunc(calls, func(c machine.Call) bool { return c.Program == "chcon" })
				return errors.Join(err, s.loaded(), expect(labels, "the device nodes have no label that containers may open"))
			},
		},
		{
			name: "NVSwitch", where: inContainers, files: map[string]string{"proc/driver/nvidia-nvswitch/devices/0000:c1:00.0": ""},
			run: func(s *scene) error {
				pod, err := s.up(version)
				if err != nil {
					return err
				}
				running := s.machine.Exists("/run/nvidia/driver/run/nvidia-fabricmanager/nv-fabricmanager.pid") || s.machine.Exists("/run/nvidia-fabricmanager/nv-fabricmanager.pid")
				return errors.Join(expect(running, "the fabric manager does not run"), s.down(pod), s.gone())
			},
		},
	}
}
