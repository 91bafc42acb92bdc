package plugin_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tessera-gpu/tessera/api/gpu/catalog"
	"github.com/tessera-gpu/tessera/api/gpu/gputest"
	"github.com/tessera-gpu/tessera/scheduler-plugin/podgroup"
)

// trays returns nodes of four GPUs, named node-0 and so on, each in the given clique.
func trays(tb testing.TB, cliques string) []runtime.Object {
	tb.Helper()
	objects := classes()
	for i, clique := range cliques {
		n := gputest.Node(tb, "gb200x4")
		n.Name = fmt.Sprintf("node-%d", i)
		objects = append(objects, newNode(n.Name))
		for j := range n.GPUs {
			n.GPUs[j].UUID = catalog.UUID(n.Name, j)
			n.GPUs[j].Clique = ""
			if clique != '-' {
				n.GPUs[j].Clique = string(clique)
			}
		}
		for _, s := range publishedOf(tb, n) {
			objects = append(objects, s)
		}
	}
	return objects
}

// groupPod is a pod of a group with its request, the node that it is restricted to, and the node that it is expected on.
type groupPod struct {
	group, size string
	class       string
	count       int64
	only, want  string
}

// TestGroups starts pods one after the other. Without a group, node-2 is the first of equal nodes, and a node in use is
// preferred to idle ones.
func TestGroups(t *testing.T) {
	tray := func(group, size, want string) groupPod { return groupPod{group, size, "gpu", 4, "", want} }
	tests := map[string]struct {
		cliques string
		pods    []groupPod
	}{
		"no group":                            {"aabb", []groupPod{tray("", "", "node-2"), tray("", "", "node-1"), tray("", "", "node-0")}},
		"nodes without cliques":               {"----", []groupPod{tray("g", "2", "node-2"), tray("h", "2", "node-1"), tray("g", "2", "node-0")}},
		"two groups, two cliques":             {"aabb", []groupPod{tray("g", "2", "node-0"), tray("h", "2", "node-2"), tray("g", "2", "node-1"), tray("h", "2", "node-3")}},
		"cliques that are mixed":              {"abba", []groupPod{tray("g", "2", "node-0"), tray("h", "2", "node-1"), tray("g", "2", "node-3"), tray("h", "2", "node-2")}},
		"the clique that the group fills":     {"aaabb", []groupPod{tray("g", "2", "node-3"), tray("g", "2", "node-4")}},
		"the clique with room for all":        {"abbb", []groupPod{tray("g", "3", "node-1"), tray("g", "3", "node-2"), tray("g", "3", "node-3")}},
		"a group of unknown size":             {"aabb", []groupPod{tray("g", "", "node-0"), tray("h", "", "node-1"), tray("g", "", "node-2"), tray("g", "", "node-3")}},
		"a size that is no number":            {"aabb", []groupPod{tray("g", "many", "node-0"), tray("g", "many", "node-1")}},
		"more than a clique has":              {"aabb", []groupPod{tray("g", "3", "node-0"), tray("g", "3", "node-1"), tray("g", "3", "node-2")}},
		"more than the cliques have":          {"-a", []groupPod{tray("g", "2", "node-1"), tray("g", "2", "node-0")}},
		"the clique before a node in use":     {"aabb", []groupPod{{"g", "2", "gpu", 4, "node-0", "node-0"}, {"", "", "gpu", 1, "node-2", "node-2"}, {"g", "2", "gpu", 1, "", "node-1"}}},
		"parts of GPUs have no links":         {"aabb", []groupPod{{"g", "2", "gpu", 4, "node-0", "node-0"}, {"", "", "timeshare", 1, "node-2", "node-2"}, {"g", "2", "timeshare", 1, "", "node-2"}}},
		"small pods keep other cliques whole": {"aaab", []groupPod{{"", "", "gpu", 2, "node-3", "node-3"}, {"g", "2", "gpu", 1, "", "node-3"}, {"g", "2", "gpu", 1, "", "node-3"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "candidates: 1", trays(t, test.cliques)...)
			for i, a := range test.pods {
				name := fmt.Sprintf("pod-%d", i)
				c.create(claimFor(name, a.class, a.count))
				c.create(grouped(newPod(name, name), a))
				if got := c.bound(name); got != a.want {
					t.Errorf("%s of group %q runs on %s, want %s", name, a.group, got, a.want)
				}
			}
		})
	}
}

func grouped(pod *corev1.Pod, a groupPod) *corev1.Pod {
	pod.Labels = map[string]string{}
	for key, value := range map[string]string{podgroup.GroupLabel: a.group, podgroup.GroupSizeLabel: a.size} {
		if value != "" {
			pod.Labels[key] = value
		}
	}
	if a.only != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: a.only}
	}
	return pod
}

// TestGroupWithClosedNodes closes the clique that fits best by its GPUs to pods.
func TestGroupWithClosedNodes(t *testing.T) {
	objects := trays(t, "aabbb")
	for _, object := range objects {
		if n, ok := object.(*corev1.Node); ok && n.Name == "node-1" {
			n.Spec.Unschedulable = true
		}
	}
	c := newCluster(t, "", objects...)
	for i, want := range []string{"node-2", "node-3"} {
		name := fmt.Sprintf("pod-%d", i)
		c.create(claimFor(name, "gpu", 4))
		c.create(grouped(newPod(name, name), groupPod{group: "g", size: "2"}))
		if got := c.bound(name); got != want {
			t.Errorf("%s runs on %s, want %s", name, got, want)
		}
	}
}

// TestGroupOfRunningPods lets a pod of the group run before the scheduler starts. A pod of another group with the same
// name runs in another namespace.
func TestGroupOfRunningPods(t *testing.T) {
	mine, other := grouped(newPod("mine", "mine"), groupPod{group: "g"}), grouped(newPod("other", "other"), groupPod{group: "g"})
	mine.Spec.NodeName, other.Spec.NodeName, other.Namespace = "node-2", "node-0", "another"
	c := newCluster(t, "", append(trays(t, "aabb"), mine, other)...)
	c.create(claimFor("new", "gpu", 4))
	c.create(grouped(newPod("new", "new"), groupPod{group: "g"}))
	if got, want := c.bound("new"), "node-2"; got != want {
		t.Errorf("the pod runs on %s, want %s, which is in the clique of its group", got, want)
	}
}

// TestGroupThatTheInTreePluginPlaces requests all GPUs of a node, which is delegated.
func TestGroupThatTheInTreePluginPlaces(t *testing.T) {
	c := newCluster(t, "", trays(t, "aabb")...)
	for i, a := range []groupPod{{group: "g", size: "2", want: "node-0"}, {group: "h", size: "2", want: "node-2"}, {group: "g", size: "2", want: "node-1"}} {
		name := fmt.Sprintf("pod-%d", i)
		c.create(with(claimFor(name, "gpu", 1), allOf))
		c.create(grouped(newPod(name, name), a))
		if got := c.bound(name); got != a.want {
			t.Errorf("%s of group %s runs on %s, want %s", name, a.group, got, a.want)
		}
	}
}
