package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/prometheus"
)

// monitored covers the dashboards and alerts about installer and scheduler, over what their pods serve after installation, upgrades and a failed driver.
// e2e/tests/agent covers those about nodes.
func monitored() {
	It("shows rollouts and scheduling on the dashboards", func(ctx context.Context) {
		server := newServer(ctx)
		components := map[string]component{"rollout": installer}
		if lab.RunsOwnScheduler(c.Kubernetes()) {
			components["scheduler"] = scheduler
		}
		for dashboard, component := range components {
			queries, err := prometheus.Dashboard(dashboard)
			Expect(err).NotTo(HaveOccurred())
			names, texts := queries.Sorted()
			first := component.scrape(ctx)
			server.Target = component.target()
			outcomes, err := server.Evaluate(ctx, []string{first, component.scrape(ctx)}, texts)
			Expect(err).NotTo(HaveOccurred())
			for i, outcome := range outcomes {
				Expect(outcome.Error).To(BeEmpty(), "%s: %s", names[i], texts[i])
				Expect(outcome.Unknown).To(BeEmpty(), "%s: %s", names[i], texts[i])
			}
		}
	})
}

// component is a component of Tessera with metrics. leading is in the metrics of the pod that leads.
type component struct {
	name    string
	port    int
	leading string
}

var (
	installer = component{"tessera-installer", 8080, "\ntessera_installer_nodes{"}
	scheduler = component{cluster.SchedulerName, 10259, "\nleader_election_master_status{name=\"kube-scheduler\"} 1\n"}
)

// target returns the labels that Prometheus gives the pods, by the PodMonitors.
func (p component) target() map[string]string {
	return map[string]string{"job": cluster.Namespace + "/" + p.name, "namespace": cluster.Namespace}
}

// scrape returns the metrics of the pod that leads, as Prometheus gets them with the account of deployments/monitoring.
func (p component) scrape(ctx context.Context) string {
	GinkgoHelper()
	var leader string
	Eventually(ctx, func(ctx context.Context) error {
		account, err := c.Client.CoreV1().Secrets(cluster.Namespace).Get(ctx, "tessera-metrics", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := c.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + p.name})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			text, err := node(hopper).Exec(ctx, "curl", "-sSk", "--fail", "--max-time", "5", "-H", "Authorization: Bearer "+string(account.Data["token"]),
				fmt.Sprintf("https://%s:%d/metrics", pod.Status.PodIP, p.port))
			if err == nil && strings.Contains("\n"+string(text), p.leading) {
				leader = string(text)
				return nil
			}
		}
		return fmt.Errorf("none of %d pods of %s leads", len(pods.Items), p.name)
	}).Should(Succeed())
	return leader
}

// newServer returns a Prometheus, and creates the account with whose token it scrapes until the end of the spec.
func newServer(ctx context.Context) prometheus.Server {
	GinkgoHelper()
	objects, err := cluster.ReadManifest("monitoring", "account.yaml")
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Apply(ctx, objects...)).To(Succeed())
	DeferCleanup(func(ctx context.Context) error { return c.Delete(ctx, objects...) })
	program := filepath.Join(GinkgoT().TempDir(), "promql")
	Expect(prometheus.Build(ctx, program)).To(Succeed())
	return prometheus.Server{Program: program}
}

// alerts returns the names of the alerts about rollouts that are raised, apart from how long they must last.
func alerts(ctx context.Context, server prometheus.Server) []string {
	GinkgoHelper()
	rules, _, err := prometheus.Rules("tessera-installer")
	Expect(err).NotTo(HaveOccurred())
	names, texts := rules.Sorted()
	server.Target = installer.target()
	outcomes, err := server.Evaluate(ctx, []string{installer.scrape(ctx)}, texts)
	Expect(err).NotTo(HaveOccurred())
	var raised []string
	for i, outcome := range outcomes {
		Expect(outcome.Error).To(BeEmpty(), names[i])
		if len(outcome.Samples) > 0 {
			raised = append(raised, names[i])
		}
	}
	return raised
}
