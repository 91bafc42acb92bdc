package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/api/v1alpha1"
)

// migLabel is the node label of the GPU Operator with the MIG layout of the node's GPUs.
const migLabel = "nvidia.com/mig.config"

// maxPoolName is the length of a pool's name.
const maxPoolName = 30

var (
	profileName = regexp.MustCompile(`^[1-9][0-9]*g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)*)?$`)
	noNameRune  = regexp.MustCompile(`[^a-z0-9]+`)
)

// layout is a named layout of MIG devices.
type layout struct {
	name     string
	profiles map[string]bool
	// on and off are whether some GPUs have MIG mode on, and off.
	on, off bool
	notes   []string
}

// newLayout parses a layout, or returns the reason why it has no counterpart.
func newLayout(name string, value any) (layout, string) {
	l := layout{name: name, profiles: map[string]bool{}}
	entries, _ := value.([]any)
	if len(entries) == 0 {
		return l, "is empty or not a list"
	}
	parted := false
	for _, entry := range entries {
		object, _ := entry.(map[string]any)
		if object["devices"] != "all" || object["device-filter"] != nil {
			parted = true
		}
		if enabled, _ := object["mig-enabled"].(bool); enabled {
			l.on = true
		} else {
			l.off = true
		}
		devices, _ := object["mig-devices"].(map[string]any)
		for _, profile := range keys(devices) {
			if !profileName.MatchString(profile) {
				return l, "has the profile " + profile + ", which is not a valid profile name; tessera gpus lists the profiles of each GPU"
			}
			l.profiles[profile] = true
		}
	}
	if len(l.profiles) > 0 {
		l.notes = append(l.notes, "sets the number of MIG devices per profile, which has no counterpart: all profiles are offered, and MIG devices are created for claims")
	}
	if parted {
		l.notes = append(l.notes, "differs between the GPUs of a node, which has no counterpart: all its profiles are offered on each GPU of the node that supports them")
	}
	if poolName(name) != name {
		l.notes = append(l.notes, "is not a valid pool name: the pool is named "+poolName(name)+"; the label of the nodes is unchanged")
	}
	return l, ""
}

// pool is the layout as a pool of nodes: the profiles that it has are offered. Without any, GPUs are not sliced.
func (l layout) pool() v1alpha1.NodePool {
	config := &v1alpha1.NodeConfigSpec{Profiles: slices.Sorted(maps.Keys(l.profiles))}
	if !l.on {
		config.Shapes = []v1alpha1.Shape{v1alpha1.ShapeGPU, v1alpha1.ShapeTimeShare, v1alpha1.ShapeMPS, v1alpha1.ShapeMonitor}
	}
	pool := v1alpha1.NodePool{
		Name: poolName(l.name), NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{migLabel: l.name}}, Config: config,
	}
	switch {
	case l.on && !l.off:
		pool.MIGMode = v1alpha1.MIGEnabled
	case l.off && !l.on:
		pool.MIGMode = v1alpha1.MIGDisabled
	}
	return pool
}

// poolName is the name of a layout as that of a pool.
func poolName(layout string) string {
	name := strings.Trim(noNameRune.ReplaceAllString(strings.ToLower(layout), "-"), "-")
	if len(name) > maxPoolName {
		name = strings.Trim(name[:maxPoolName], "-")
	}
	if name == "default" { // the pool of the nodes that no other chooses
		return "mig-default"
	}
	return name
}
