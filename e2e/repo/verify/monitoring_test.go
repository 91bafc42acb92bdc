package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	object := monitoringFile[ofOperator[ruleFile]](t, "prometheusrule.yaml")
	if diff := cmp.Diff(plain, object.Spec); diff != "" {
		t.Errorf("the two files differ (-rules.yaml +prometheusrule.yaml):\n%s", diff)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" {
		t.Errorf("prometheusrule.yaml is %s %s", object.APIVersion, object.Kind)
	}
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
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s: severity %q", rule.Alert, severity)
			}
			if _, err := time.ParseDuration(rule.For); rule.For != "" && err != nil {
				t.Errorf("%s: for %q", rule.Alert, rule.For)
			}
		}
	}
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
	Panels []struct {
		ID      int
		GridPos struct{ H, W, X, Y int }
		Targets []struct {
			Datasource map[string]string
			Expr       string
		}
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "deployments", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard dashboardFile
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
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
			if !strings.Contains(target.Expr, `node=~"$node"`) {
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
		ConfigMapGenerator []struct {
			Name    string         `json:"name"`
			Files   []string       `json:"files"`
			Options map[string]any `json:"options"`
		} `json:"configMapGenerator"`
	}](t, "kustomization.yaml")
	listed := append([]string{"kustomization.yaml", "rules.yaml", "README.md"}, kustomization.Resources...)
	for _, generator := range kustomization.ConfigMapGenerator {
		for _, file := range generator.Files {
			_, path, _ := strings.Cut(file, "=")
			listed = append(listed, path)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root(t), "deployments", "monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, entry := range entries {
		there = append(there, entry.Name())
	}
	slices.Sort(listed)
	slices.Sort(there)
	if diff := cmp.Diff(there, listed); diff != "" {
		t.Errorf("files of the kustomization, with rules.yaml for a Prometheus without operator (-there +listed):\n%s", diff)
	}
}
