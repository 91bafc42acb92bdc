package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
)

// schedulerUser is the account of the product's scheduler.
const schedulerUser = "system:serviceaccount:" + cluster.Namespace + ":" + cluster.SchedulerName

// clientAs returns a client that impersonates the user.
func clientAs(user string) kubernetes.Interface {
	GinkgoHelper()
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

// identity writes a kubeconfig with a token of a service account and returns its path.
func identity(ctx context.Context, namespace, account string) string {
	GinkgoHelper()
	token, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	access := c.Config()
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData}
	config.AuthInfos["lab"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab"}
	config.CurrentContext = "lab"
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// secondScheduler creates a service account in the room with the permissions of a scheduler. It returns its user name
// and kubeconfig.
func (r room) secondScheduler(ctx context.Context) (user, kubeconfig string) {
	GinkgoHelper()
	for _, role := range []string{"system:kube-scheduler", "system:volume-scheduler"} {
		binding, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "second-scheduler-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.namespace, Name: account}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(c.Client.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})).To(Succeed())
		})
	}
	return "system:serviceaccount:" + r.namespace + ":" + account, identity(ctx, r.namespace, account)
}

// Schedulers that the specs run in addition to the lab's own, by folder and program in the lab's cache.
var (
	stockProgram   = [2]string{"kubernetes", "kube-scheduler"}
	tesseraProgram = [2]string{"tessera", "tessera-scheduler"}
)

// scheduling is a scheduler that a spec runs on the host.
type scheduling struct {
	command *exec.Cmd
	log     string
}

// startScheduler runs a scheduler with a configuration until the spec ends.
func startScheduler(ctx context.Context, program [2]string, config map[string]any, flags ...string) *scheduling {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	text, err := yaml.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(dir, "config.yaml")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
	s := &scheduling{log: filepath.Join(dir, "log")}
	log, err := os.Create(s.log)
	Expect(err).NotTo(HaveOccurred())
	defer log.Close() //nolint:errcheck // the program has its own copy
	s.command = exec.Command(programPath(ctx, program), append([]string{"--config=" + file, "--secure-port=0"}, flags...)...)
	s.command.Stdout, s.command.Stderr = log, log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(s.command.Start()).To(Succeed())
	DeferCleanup(func() {
		s.end(syscall.SIGTERM)
		if text, err := os.ReadFile(s.log); err == nil && CurrentSpecReport().Failed() {
			GinkgoWriter.Printf("log of %s:\n%s\n", program[1], text)
		}
	})
	return s
}

// end signals the scheduler, unless it has exited, and returns when it has exited.
func (s *scheduling) end(how syscall.Signal) {
	if s.command.ProcessState != nil {
		return
	}
	_ = s.command.Process.Signal(how)
	_ = s.command.Wait() // the exit status depends on the signal
}

func programPath(ctx context.Context, program [2]string) string {
	GinkgoHelper()
	cache, err := binaries.DefaultCache()
	Expect(err).NotTo(HaveOccurred())
	source, err := binaries.Source()
	Expect(err).NotTo(HaveOccurred())
	folders, err := binaries.Builder{Modules: filepath.Join(source, "e2e", "env", "lab", "modules"), Cache: cache, Progress: GinkgoWriter}.Build(ctx)
	Expect(err).NotTo(HaveOccurred())
	folders["tessera"] = lab.ProductFolder(cache)
	return filepath.Join(folders[program[0]], program[1])
}

// shippedConfig returns a configuration of deployments/ for a way to run the scheduler, with a kubeconfig.
func shippedConfig(way, kubeconfig string) map[string]any {
	GinkgoHelper()
	source, err := binaries.Source()
	Expect(err).NotTo(HaveOccurred())
	text, err := os.ReadFile(filepath.Join(source, "deployments", "scheduler", way, "config.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var config map[string]any
	Expect(yaml.Unmarshal(text, &config)).To(Succeed())
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
	return config
}

// stockConfig returns a configuration of kube-scheduler for the pods that name the profile.
func stockConfig(profile, kubeconfig string) map[string]any {
	return map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"kubeconfig": kubeconfig},
		"leaderElection":   map[string]any{"leaderElect": false},
		"profiles":         []any{map[string]any{"schedulerName": profile}},
	}
}

// allocator returns the user of the lab's scheduler, which may allocate devices.
func allocator() string {
	if lab.RunsOwnScheduler(c.Kubernetes()) {
		return schedulerUser
	}
	return "system:kube-scheduler"
}

// withoutScheduler stops the lab's scheduler until the spec ends.
func withoutScheduler(ctx context.Context) {
	GinkgoHelper()
	service := lab.Scheduler
	if !lab.RunsOwnScheduler(c.Kubernetes()) {
		service = lab.KubeScheduler
	}
	Expect(c.ControlPlane().StopService(ctx, service)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(c.ControlPlane().StartService(ctx, service)).To(Succeed())
	})
}

// named returns a numbered name.
func named(what string, i int) string { return fmt.Sprintf("%s-%d", what, i) }
