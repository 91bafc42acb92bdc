package nvidia

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/e2e/tests/contract/machine"
)

// contractCase is one course of events. An error names what differs from what the entry points need or do.
type contractCase struct {
	name string
	// where reports for which variants it is; nil means all.
	where func(variant) bool
	// files are further files of the machine.
	files map[string]string
	run   func(*scene) error
}

func compiled(v variant) bool     { return !v.precompiled && !v.vgpu }
func inContainers(v variant) bool { return !v.vgpu }

// cases are the courses of events that every driver image must survive.
func cases() []contractCase {
	return slices.Concat(lifecycleCases(), configCases(), rdmaCases(), hostCases())
}

// expect returns an error unless a condition holds.
func expect(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// loaded reports whether the driver is loaded, and shown to the machine.
func (s *scene) loaded() error {
	return errors.Join(
		expect(slices.Contains(s.machine.Modules(), "nvidia"), "the module nvidia is not loaded: %v", s.machine.Modules()),
		expect(s.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi"), "the machine does not see the driver's root"),
		expect(s.vgpu || s.machine.Exists("/run/nvidia/driver/run/nvidia-persistenced/nvidia-persistenced.pid"), "the persistence daemon does not run: the GPUs did not start"),
		expect(s.vgpu || s.machine.Exists("/run/nvidia/validations/.driver-ctr-ready"), "no file reports to sidecars that the driver is ready"))
}

// gone reports whether nothing of the driver is left.
func (s *scene) gone() error {
	return errors.Join(
		expect(!slices.ContainsFunc(s.machine.Modules(), func(m string) bool { return strings.HasPrefix(m, "nvidia") }), "modules stay: %v", s.machine.Modules()),
		expect(!s.machine.Exists("/run/nvidia/driver/usr/bin/nvidia-smi"), "the driver's root stays"),
		expect(!s.machine.Exists("/run/nvidia/validations/.driver-ctr-ready"), "sidecars see a driver that is not ready"))
}

// down terminates a pod, whose containers all end by themselves.
func (s *scene) down(pod *machine.Pod) error {
	ended, err := pod.Stop()
	if err != nil {
		return err
	}
	for _, name := range pod.Names() {
		if !ended[name] {
			return fmt.Errorf("%s did not end in its grace period: %s", name, pod.Output(name))
		}
	}
	return nil
}

// use opens the driver as workloads do, until end is called.
func (s *scene) use() (end func() error, err error) {
	second := "nvidia_uvm"
	if s.vgpu {
		second = "nvidia_vgpu_vfio"
	}
	a, err := s.machine.Use("nvidia")
	if err != nil {
		return nil, err
	}
	b, err := s.machine.Use(second)
	return func() error { return errors.Join(a(), b(), s.machine.Settle()) }, err
}

// unloads counts the calls that have unloaded modules.
func (s *scene) unloads() (int, error) {
	calls, err := s.machine.Calls()
	n := 0
	for _, c := range calls {
		if c.Program == "rmmod" || c.Program == "delete_module" {
			n++
		}
	}
	return n, err
}

func lifecycleCases() []contractCase {
	return []contractCase{
		{name: "installation and removal", run: func(s *scene) error {
			pod, err := s.up(version)
			if err != nil {
				return err
			}
			firmware := s.machine.Read("/sys/module/firmware_class/parameters/path")
			if err := errors.Join(s.loaded(), expect(firmware == "/run/nvidia/driver/lib/firmware", "the kernel searches firmware at %q", firmware)); err != nil {
				return err
			}
			return errors.Join(s.down(pod), s.gone())
		}},
		{name: "upgrade", run: func(s *scene) error {
			pod, err := s.up(older)
			if err != nil {
				return err
			}
			if err := s.down(pod); err != nil {
				return err
			}
			if _, err := s.up(version); err != nil {
				return err
			}
			got := s.machine.Read("/sys/module/nvidia/version")
			return errors.Join(s.loaded(), expect(got == version, "version %s is loaded", got))
		}},
		{name: "upgrade after the container was killed", run: func(s *scene) error {
			pod, err := s.up(older)
			if err != nil {
				return err
			}
			if err := pod.Kill(s.main()); err != nil {
				return err
			}
			if _, err := s.up(version); err != nil {
				return err
			}
			got := s.machine.Read("/sys/module/nvidia/version")
			return errors.Join(s.loaded(), expect(got == version, "version %s is loaded", got))
		}},
		{name: "removal while the driver is in use", run: removalInUse},
		{name: "container restart while the driver is in use", run: restartInUse},
		{name: "new pod of the same driver while it is in use", run: newPodInUse},
	}
}

// upInUse starts a pod until it is ready, and then a program that uses its driver until end is called.
func (s *scene) upInUse(version string) (pod *machine.Pod, end func() error, err error) {
	if pod, err = s.up(version); err != nil {
		return nil, nil, err
	}
	end, err = s.use()
	return pod, end, err
}

// removalInUse checks that a driver in use stays with its modules, that the next driver is refused, and that it is installed after the use.
func removalInUse(s *scene) error {
	pod, end, err := s.upInUse(older)
	if err != nil {
		return err
	}
	if _, err := pod.Stop(); err != nil {
		return err
	}
	if err := expect(slices.Contains(s.machine.Modules(), "nvidia"), "a driver in use was unloaded"); err != nil {
		return err
	}
	_, err = s.up(version)
	if err := expect(err != nil && strings.Contains(err.Error(), "ModuleInUse"), "another driver is installed over one in use: %v", err); err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if _, err = s.up(version); err != nil {
		return err
	}
	return s.loaded()
}

// restartInUse checks which entry points survive a crash of the container while the driver is in use: those that keep the modules of the same digest, and
// those that unload nothing at their start (rhel9/precompiled). The others start once the use has ended.
func restartInUse(s *scene) error {
	pod, end, err := s.upInUse(version)
	if err != nil {
		return err
	}
	before, err := s.unloads()
	if err != nil {
		return err
	}
	if err := errors.Join(pod.Kill(s.main()), pod.Restart(s.main())); err != nil {
		return err
	}
	survives := s.fast || s.name == "rhel9/precompiled"
	if !survives {
		err := s.until("the container ends", func() bool { return pod.Ended(s.main()) })
		if err != nil {
			return err
		}
		if err := errors.Join(end(), pod.Restart(s.main())); err != nil {
			return err
		}
		return errors.Join(s.wait(pod), s.loaded())
	}
	if err := errors.Join(s.wait(pod), s.loaded()); err != nil {
		return err
	}
	after, err := s.unloads()
	return errors.Join(err, expect(before == after, "the restart unloaded modules"), end())
}

// newPodInUse checks the same for a new pod: entry points that store the digest keep the modules, and unload lets them. The others are refused.
func newPodInUse(s *scene) error {
	pod, end, err := s.upInUse(version)
	if err != nil {
		return err
	}
	if _, err := pod.Stop(); err != nil {
		return err
	}
	_, err = s.up(version)
	if s.fast {
		return errors.Join(err, s.loaded(), end())
	}
	if err := expect(err != nil && strings.Contains(err.Error(), "ModuleInUse"), "not refused: %v", err); err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	_, err = s.up(version)
	return errors.Join(err, s.loaded())
}

func configCases() []contractCase {
	config := func(name string, data map[string]string, set func(*scene), check func(*scene) error) func(*scene) error {
		return func(s *scene) error {
			s.configs[name] = data
			set(s)
			if _, err := s.up(version); err != nil {
				return err
			}
			return errors.Join(s.loaded(), check(s))
		}
	}
	nothing := func(*scene) error { return nil }
	return []contractCase{
		{
			name: "module parameters", where: inContainers,
			run: config("modules", map[string]string{"nvidia.conf": "NVreg_Own=1\n"}, func(s *scene) { s.spec.KernelModuleConfig = "modules" }, func(s *scene) error {
				got := s.machine.Read("/sys/module/nvidia/parameters")
				return expect(strings.Contains(got, "NVreg_Own=1"), "the module is loaded with %q", got)
			}),
		},
		{
			name: "own package repositories", where: func(v variant) bool { return v.network != "" && !v.vgpu },
			run: func(s *scene) error {
				if err := s.machine.Write(".network", s.network); err != nil {
					return err
				}
				return config("repositories", map[string]string{"mirror.list": "deb http://mirror"}, func(s *scene) { s.spec.RepoConfig = "repositories" }, nothing)(s)
			},
		},
		{
			name: "certificates and a Secret with the proxy", where: func(v variant) bool { return v.network != "" && !v.vgpu }, files: map[string]string{".network": "HTTPS_PROXY"},
			run: func(s *scene) error {
				s.configs["proxy"] = map[string]string{"HTTPS_PROXY": "http://proxy"}
				s.spec.SecretEnv = "proxy"
				return config("certificates", map[string]string{"own.crt": "certificate"}, func(s *scene) { s.spec.CertConfig = "certificates" }, nothing)(s)
			},
		},
		{
			// The image of a guest has this type, and the license is copied from the paths that the GPU Operator mounts (internal/consts/consts.go:53,57).
			name: "license of a vGPU guest", where: compiled,
			run: func(s *scene) error {
				s.configs["license"] = map[string]string{"gridd.conf": "FeatureType=1\n", "client_configuration_token.tok": "token"}
				s.spec.LicensingSecret, s.spec.Env = "license", []corev1.EnvVar{{Name: "DRIVER_TYPE", Value: "vgpu"}}
				if _, err := s.up(version + "-grid"); err != nil {
					return err
				}
				const root = "/run/nvidia/driver/etc/nvidia/"
				gridd, token := s.machine.Read(root+"gridd.conf"), s.machine.Read(root+"ClientConfigToken/client_configuration_token.tok")
				return errors.Join(s.loaded(), expect(gridd == "FeatureType=1\n" || gridd == "FeatureType=1", "gridd.conf is %q", gridd), expect(token == "token", "the token is %q", token))
			},
		},
		{
			name: "the host's subscription", where: func(v variant) bool { return v.name == "rhel9" },
			files: map[string]string{".network": "/run/secrets/etc-pki-entitlement/*.pem", "etc/pki/entitlement/1.pem": "subscription"},
			run: func(s *scene) error {
				_, err := s.up(version)
				return errors.Join(err, s.loaded())
			},
		},
	}
}
