package main

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// Every argument with which the installer starts this program, or probes it, is one that it knows: an unknown one would keep a pod from starting.
func TestRenderedArgumentsAreKnown(t *testing.T) {
	const image = "node"
	precompiled := v1alpha1.DriverSpec{UsePrecompiled: true}
	rdma := v1alpha1.DriverSpec{RDMA: v1alpha1.RDMASpec{Component: v1alpha1.Component{Enabled: new(true)}, UseHostMOFED: true}}
	in := render.Input{
		Namespace: "tessera-system",
		Images: render.Images{
			Node: image, Scheduler: "scheduler", Driver: "driver", DriverVersion: "580.1", DCGM: "dcgm", DCGMExporter: "exporter",
		},
		Drivers: []render.DriverSet{
			{Owner: "a", Host: render.Host{OS: "ubuntu24.04"}},
			{Owner: "c", Spec: rdma, Host: render.Host{OS: "rhel9.6"}},
			{Owner: "b", Spec: precompiled, Host: render.Host{OS: "ubuntu24.04", Kernel: "6.8.0-60-generic"}},
		},
	}
	in.Policy.Spec.HostPaths = v1alpha1.HostPathsSpec{
		DriverInstallDir: "/run/lab/driver", KubeletRoot: "/data/kubelet", CDI: "/run/lab/cdi", Proc: "/run/lab/proc", Sys: "/run/lab/sys", Dev: "/run/lab/root",
	}
	objects, err := render.Objects(in)
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]bool{}
	for _, object := range objects {
		set, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		pod := set.Spec.Template.Spec
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Image != image {
				continue
			}
			lines := [][]string{c.Args}
			if c.ReadinessProbe != nil && c.ReadinessProbe.Exec != nil {
				lines = append(lines, c.ReadinessProbe.Exec.Command[1:])
			}
			for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
				if p != nil && p.HTTPGet != nil {
					verbs["GET "+p.HTTPGet.Path] = true
				}
			}
			for _, line := range lines {
				verbs[parse(t, object.GetName()+" "+c.Name, line)] = true
			}
		}
	}
	for _, verb := range []string{"tessera-node", "GET " + readyPath, "GET " + livePath, "tessera-node discover", "tessera-node host preflight", "tessera-node host unload", "tessera-node host network-driver", "tessera-node host toolkit"} {
		if !verbs[verb] {
			t.Errorf("nothing runs %s", verb)
		}
	}
}

// parse reads a command line as the program does and returns the verb.
func parse(t *testing.T, who string, line []string) string {
	t.Helper()
	verb, rest, err := command().Find(line)
	if err == nil {
		err = verb.ParseFlags(rest)
	}
	if err == nil {
		err = verb.ValidateArgs(verb.Flags().Args())
	}
	if err == nil {
		err = verb.ValidateFlagGroups()
	}
	if err != nil {
		t.Errorf("%s: %s: %v", who, strings.Join(line, " "), err)
		return ""
	}
	return verb.CommandPath()
}
