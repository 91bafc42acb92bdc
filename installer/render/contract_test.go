package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/installer/render"
)

// TestDriverDaemonSetsAreKnownByTheirDigest checks that a driver's DaemonSet has the update strategy OnDelete and the same digest in all places.
func TestDriverDaemonSetsAreKnownByTheirDigest(t *testing.T) {
	in := everything()
	for _, set := range in.Drivers {
		what := drv(t, in, set)
		short, operand := what.Digest[:12], "tessera-driver"
		if set.VGPU {
			operand = "tessera-vgpu-manager"
		}
		ds := one[*appsv1.DaemonSet](t, objects(t, in), operand+"-"+short)
		if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			t.Errorf("%s replaces running drivers by itself: %s", ds.Name, ds.Spec.UpdateStrategy.Type)
		}
		template := ds.Spec.Template
		if got := template.Annotations[render.AnnotationDigest]; got != what.Digest {
			t.Errorf("%s: the digest of its pods is %s", ds.Name, got)
		}
		for where, labels := range map[string]map[string]string{
			"pods": template.Labels, "selector": ds.Spec.Selector.MatchLabels, "nodes": template.Spec.NodeSelector,
		} {
			if labels[v1alpha1.LabelDriver] != short {
				t.Errorf("%s: %s are those with %v", ds.Name, where, labels)
			}
		}
		env := template.Spec.Containers[0].Env
		i := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Name == "DRIVER_CONFIG_DIGEST" })
		if i < 0 || env[i].Value != what.Digest || !slices.Contains(template.Spec.InitContainers[1].Args, "--digest="+what.Digest) {
			t.Errorf("%s: container and unload have different digests: a restart would install the driver again", ds.Name)
		}
	}
}

// TestMonitorsWatchAllGPUsAndTakeNone checks that monitors see all GPUs of a ready node with admin access, and that their Services are node-local.
func TestMonitorsWatchAllGPUsAndTakeNone(t *testing.T) {
	in := everything()
	in.Policy.Spec.DCGM.Resources, in.Policy.Spec.DCGMExporter.Resources = taste().Resources, taste().Resources
	all := objects(t, in)
	for _, name := range []string{"tessera-dcgm", "tessera-dcgm-exporter"} {
		pod := one[*appsv1.DaemonSet](t, all, name).Spec.Template.Spec
		if pod.NodeSelector[v1alpha1.LabelReady] != "true" {
			t.Errorf("%s runs on nodes that are not ready, and would keep a driver from leaving", name)
		}
		claim := pod.ResourceClaims[0]
		if got := pod.Containers[0].Resources.Claims; len(got) != 1 || got[0].Name != claim.Name {
			t.Errorf("%s: its container does not use the claim: %v", name, got)
		}
		request := one[*resourceapi.ResourceClaimTemplate](t, all, *claim.ResourceClaimTemplateName).Spec.Spec.Devices.Requests[0].Exactly
		if request.AdminAccess == nil || !*request.AdminAccess || request.AllocationMode != resourceapi.DeviceAllocationModeAll || request.DeviceClassName != "monitor.tessera.dev" {
			t.Errorf("%s claims %+v", name, request)
		}
		service := one[*corev1.Service](t, all, name).Spec
		if service.InternalTrafficPolicy == nil || *service.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal {
			t.Errorf("the Service %s leads to other nodes", name)
		}
	}
}

// TestExporterFollowsEngineAndList checks that the exporter connects to the host engine if it is enabled, and restarts when its metrics list changes.
func TestExporterFollowsEngineAndList(t *testing.T) {
	template := func(in render.Input) corev1.PodTemplateSpec {
		return one[*appsv1.DaemonSet](t, objects(t, in), "tessera-dcgm-exporter").Spec.Template
	}
	engine := corev1.EnvVar{Name: "DCGM_REMOTE_HOSTENGINE_INFO", Value: "tessera-dcgm:5555"}
	if slices.Contains(template(plain()).Spec.Containers[0].Env, engine) || !slices.Contains(template(everything()).Spec.Containers[0].Env, engine) {
		t.Error("the exporter connects to an absent or wrong host engine")
	}
	in := everything()
	before := template(in).Annotations[render.AnnotationConfig]
	in.Contents["ConfigMap/metrics"] = "another list"
	if after := template(in).Annotations[render.AnnotationConfig]; before == "" || before == after {
		t.Errorf("another list starts no new exporter: %q, %q", before, after)
	}
}

// TestEveryVolumeIsMounted checks that pods mount all their volumes and have all mounted volumes.
func TestEveryVolumeIsMounted(t *testing.T) {
	for _, in := range inputs() {
		for _, object := range objects(t, in) {
			pod, ok := podOf(object)
			if !ok {
				continue
			}
			mounted := map[string]bool{}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				at := map[string]bool{}
				for _, m := range c.VolumeMounts {
					mounted[m.Name] = true
					if at[m.MountPath] {
						t.Errorf("%s: %s has two mounts at %s", object.GetName(), c.Name, m.MountPath)
					}
					at[m.MountPath] = true
				}
			}
			for _, v := range pod.Volumes {
				if !mounted[v.Name] {
					t.Errorf("%s: the volume %s is mounted nowhere, or there twice", object.GetName(), v.Name)
				}
				delete(mounted, v.Name)
			}
			for name := range mounted {
				t.Errorf("%s: no volume %s", object.GetName(), name)
			}
		}
	}
}

// TestHostRootIsPropagated checks that mounts of the host's root have mount propagation: a volume that stays mounted in a pod cannot move to another
// node, and a driver's root could not be unmounted.
func TestHostRootIsPropagated(t *testing.T) {
	for _, object := range objects(t, everything()) {
		pod, ok := podOf(object)
		if !ok {
			continue
		}
		for _, c := range pod.Containers {
			for _, m := range c.VolumeMounts {
				if (m.Name == "host" || strings.HasPrefix(m.MountPath, "/run/nvidia/driver") || m.MountPath == "/run/nvidia") && m.MountPropagation == nil {
					t.Errorf("%s: %s keeps what is mounted at %s", object.GetName(), c.Name, m.MountPath)
				}
			}
		}
	}
}
