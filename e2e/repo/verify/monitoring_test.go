package verify

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// e2e/tests/agent runs the queries against a live agent.

// ruleFile is a file of alert rules, as Prometheus reads it.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert,omitempty"`
			Record      string            `json:"record,omitempty"`
			Expr        string            `json:"expr"`
			For         string            `json:"for,omitempty"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"rules"`
	} `json:"groups"`
}

// ofOperator is an object of the Prometheus operator.
type ofOperator[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

// podMonitor has the fields of the operator's type that are used.
type podMonitor struct {
	Selector            metav1.LabelSelector `json:"selector"`
	PodMetricsEndpoints []struct {
		Port        string `json:"port"`
		Interval    string `json:"interval"`
		HonorLabels bool   `json:"honorLabels"`
		Scheme      string `json:"scheme"`
		TLSConfig   struct {
			InsecureSkipVerify bool `json:"insecureSkipVerify"`
		} `json:"tlsConfig"`
		Authorization struct {
			Credentials corev1.SecretKeySelector `json:"credentials"`
		} `json:"authorization"`
		Relabelings []struct {
			SourceLabels []string `json:"sourceLabels"`
			TargetLabel  string   `json:"targetLabel"`
		} `json:"relabelings"`
	} `json:"podMetricsEndpoints"`
}

// monitoringFile reads a file of deployments/monitoring; a field that the type does not have is an error.
func monitoringFile[T any](t *testing.T, name string) T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "deployments", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	var into T
	if err := yaml.UnmarshalStrict(text, &into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return into
}

func TestAlertRules(t *testing.T) {
	plain := monitoringFile[ruleFile](t, "rules.yaml")
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, group := range plain.Groups {
		for _, rule := range group.Rules {
			if rule.Record != "" {
				if !strings.HasPrefix(rule.Record, "tessera_device_pod:") || rule.Alert != "" {
					t.Errorf("%s: the name begins with the labels of the series, tessera_device_pod:", rule.Record)
				}
				continue
			}
			if !strings.HasPrefix(rule.Alert, "Tessera") || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%q: needs a name that begins with Tessera, a summary, and a description with the action to take", rule.Alert)
			}
			alerts = append(alerts, rule.Alert)
			if want := "https://github.com/tessera-gpu/tessera/blob/main/docs/alerts.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s: severity %q", rule.Alert, severity)
			}
			if _, err := time.ParseDuration(rule.For); rule.For != "" && err != nil {
				t.Errorf("%s: for %q", rule.Alert, rule.For)
			}
		}
	}
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, match[1])
	}
	slices.Sort(alerts)
	slices.Sort(sections)
	if diff := cmp.Diff(alerts, sections); diff != "" {
		t.Errorf("sections of docs/alerts.md (-alerts +sections):\n%s", diff)
	}
}

// TestChartMonitors: with the values, the chart has the objects of deployments/monitoring, with the labels by which Prometheus selects them.
func TestChartMonitors(t *testing.T) {
	kinds := func(flags ...string) map[string]int {
		count := map[string]int{}
		for _, object := range templated(t, "gpus", flags...) {
			if object.GroupVersionKind().Group == "monitoring.coreos.com" || object.GetName() == "tessera-metrics" || object.GetName() == "tessera-dashboards" {
				count[object.GetKind()]++
				if flags != nil && object.GetLabels()["release"] != "prom" {
					t.Errorf("%s %s has the labels %v", object.GetKind(), object.GetName(), object.GetLabels())
				}
				if object.GetNamespace() != "gpus" {
					t.Errorf("%s %s is in %q", object.GetKind(), object.GetName(), object.GetNamespace())
				}
			}
		}
		return count
	}
	if got := kinds(); len(got) > 0 {
		t.Errorf("by default: %v", got)
	}
	all := []string{"--set", "monitoring.podMonitors=true,monitoring.rules=true,monitoring.dashboards=true,monitoring.labels.release=prom"}
	want := map[string]int{"PodMonitor": 3, "PrometheusRule": 1, "ConfigMap": 1, "ServiceAccount": 1, "Secret": 1}
	if diff := cmp.Diff(want, kinds(all...)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	plain := monitoringFile[ofOperator[ruleFile]](t, "prometheusrule.yaml")
	for _, object := range templated(t, "gpus", all...) {
		switch {
		case object.GetKind() == "PrometheusRule":
			text, err := yaml.Marshal(object.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			var spec ruleFile
			if err := yaml.UnmarshalStrict(text, &spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain.Spec, spec); diff != "" {
				t.Errorf("rules of the chart (-deployments/monitoring +chart):\n%s", diff)
			}
		case object.GetName() == "tessera-dashboards":
			data, _, err := unstructured.NestedStringMap(object.Object, "data")
			if err != nil || len(data) != len(dashboards(t)) {
				t.Errorf("%d dashboards: %v", len(data), err)
			}
			for name, text := range data {
				if text != strings.TrimSpace(dashboards(t)[strings.TrimPrefix(name, "tessera-")]) {
					t.Errorf("%s differs from deployments/monitoring", name)
				}
			}
		}
	}
}

// dashboards returns the texts of Grafana's files by name.
func dashboards(t *testing.T) map[string]string {
	t.Helper()
	folder := os.DirFS(filepath.Join(root(t), "deployments", "monitoring", "dashboards"))
	names, err := fs.Glob(folder, "*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

func TestPodMonitorFindsTheAgent(t *testing.T) {
	monitor := monitoringFile[ofOperator[podMonitor]](t, "podmonitor.yaml")
	agent := one[*appsv1.DaemonSet](t, manifests(t, "deployments"))
	if monitor.Namespace != agent.Namespace {
		t.Errorf("the monitor is in %s, the agent in %s", monitor.Namespace, agent.Namespace)
	}
	selector, err := metav1.LabelSelectorAsMap(&monitor.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range selector {
		if agent.Spec.Template.Labels[key] != value {
			t.Errorf("the agent's pods have no label %s=%s", key, value)
		}
	}
	var ports []string
	for _, port := range agent.Spec.Template.Spec.Containers[0].Ports {
		ports = append(ports, port.Name)
	}
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		if !slices.Contains(ports, endpoint.Port) {
			t.Errorf("the agent has no port %s", endpoint.Port)
		}
		if !endpoint.HonorLabels {
			t.Error("without honorLabels the pods of the devices are called exported_pod, and no query finds them")
		}
	}
}

// TestPodMonitorsUseTheAccount: every PodMonitor scrapes over TLS with the token of the account, which may get metrics and nothing else.
func TestPodMonitorsUseTheAccount(t *testing.T) {
	const file = "deployments/monitoring/account.yaml"
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	account := map[string][]runtime.Object{file: decode(t, file, string(text))}
	secret, binding := one[*corev1.Secret](t, account), one[*rbacv1.ClusterRoleBinding](t, account)
	if binding.RoleRef.Name != "tessera-metrics-reader" || binding.Subjects[0].Name != secret.Annotations[corev1.ServiceAccountNameKey] {
		t.Errorf("%+v of %v", binding.RoleRef, binding.Subjects)
	}
	rules := named[*rbacv1.ClusterRole](t, rendered(t), binding.RoleRef.Name).Rules
	if diff := cmp.Diff([]rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}, rules); diff != "" {
		t.Errorf("rules of %s (-want +got):\n%s", binding.RoleRef.Name, diff)
	}
	for _, name := range []string{"podmonitor.yaml", "podmonitor-installer.yaml", "podmonitor-scheduler.yaml"} {
		for _, endpoint := range monitoringFile[ofOperator[podMonitor]](t, name).Spec.PodMetricsEndpoints {
			credentials := endpoint.Authorization.Credentials
			if endpoint.Scheme != "https" || !endpoint.TLSConfig.InsecureSkipVerify || credentials.Name != secret.Name || credentials.Key != corev1.ServiceAccountTokenKey {
				t.Errorf("%s: %+v", name, endpoint)
			}
		}
	}
}

// dashboardFile has the fields of Grafana's format that are checked.
type dashboardFile struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID      int
		GridPos struct{ H, W, X, Y int }
		Targets []struct {
			Datasource map[string]string
			Expr       string
		}
	}
}

func TestDashboards(t *testing.T) {
	for name, text := range dashboards(t) {
		t.Run(name, func(t *testing.T) { checkDashboard(t, text) })
	}
}

func checkDashboard(t *testing.T, text string) {
	t.Helper()
	var dashboard dashboardFile
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	selects := slices.ContainsFunc(dashboard.Templating.List, func(v struct{ Name string }) bool { return v.Name == "node" })
	ids, taken := map[int]bool{}, map[[2]int]int{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("two panels have the id %d", panel.ID)
		}
		ids[panel.ID] = true
		for x := panel.GridPos.X; x < panel.GridPos.X+panel.GridPos.W; x++ {
			for y := panel.GridPos.Y; y < panel.GridPos.Y+panel.GridPos.H; y++ {
				if other, is := taken[[2]int{x, y}]; is || x >= 24 {
					t.Fatalf("panel %d overlaps panel %d or is outside the grid", panel.ID, other)
				}
				taken[[2]int{x, y}] = panel.ID
			}
		}
		for _, target := range panel.Targets {
			if target.Datasource["uid"] != "${datasource}" {
				t.Errorf("panel %d: the data source is %q, must be the variable", panel.ID, target.Datasource["uid"])
			}
			if selects && !strings.Contains(target.Expr, `node=~"$node"`) {
				t.Errorf("panel %d does not follow the choice of nodes: %s", panel.ID, target.Expr)
			}
		}
	}
}

func TestMonitoringHasEveryFile(t *testing.T) {
	kustomization := monitoringFile[struct {
		APIVersion         string   `json:"apiVersion"`
		Kind               string   `json:"kind"`
		Namespace          string   `json:"namespace"`
		Resources          []string `json:"resources"`
		Labels             []any    `json:"labels"`
		ConfigMapGenerator []struct {
			Name    string         `json:"name"`
			Files   []string       `json:"files"`
			Options map[string]any `json:"options"`
		} `json:"configMapGenerator"`
	}](t, "kustomization.yaml")
	listed := append([]string{"kustomization.yaml", "rules.yaml", "README.md", "dashboards.yaml"}, kustomization.Resources...)
	for _, generator := range kustomization.ConfigMapGenerator {
		for _, file := range generator.Files {
			_, path, _ := strings.Cut(file, "=")
			listed = append(listed, path)
		}
	}
	var there []string
	folder := filepath.Join(root(t), "deployments", "monitoring")
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		there = append(there, relative)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	slices.Sort(there)
	if diff := cmp.Diff(there, listed); diff != "" {
		t.Errorf("files of the kustomization, with rules.yaml for a Prometheus without operator (-there +listed):\n%s", diff)
	}
}
