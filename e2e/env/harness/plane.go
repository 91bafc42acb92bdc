package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/pki"
)

// Plane is an API server on loopback without nodes and controllers.
type Plane struct {
	// Client is an administrator's client without a rate limit.
	Client kubernetes.Interface
	// Kubeconfig is the path of a kubeconfig with the same access.
	Kubeconfig string
	ports      []Port
	processes  []*Process
}

// StartPlane starts etcd and the API server, with further arguments, in dir and waits until the API server answers. Stop ends them.
func StartPlane(ctx context.Context, dir string, programs binaries.Folders, args ...string) (_ *Plane, err error) {
	p := &Plane{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	for range 3 {
		port, err := HoldPort()
		if err != nil {
			return nil, err
		}
		p.ports = append(p.ports, port)
	}
	token := rand.Text()
	own, err := writeCredentials(dir, token)
	if err != nil {
		return nil, err
	}
	etcd, peers, server := "http://"+p.ports[0].Address, "http://"+p.ports[1].Address, p.ports[2]
	err = p.start(dir, filepath.Join(programs[binaries.Etcd], "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peers, "--socket-reuse-port")
	if err != nil {
		return nil, err
	}
	err = p.start(dir, filepath.Join(programs[binaries.Kubernetes], "kube-apiserver"), append([]string{"--etcd-servers=" + etcd, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", server.Number), "--permit-port-sharing", "--tls-cert-file=" + own.certificate, "--tls-private-key-file=" + own.key, "--token-auth-file=" + own.tokens,
		"--authorization-mode=RBAC", "--allow-privileged", "--disable-admission-plugins=ServiceAccount",
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement", // as OpenShift has it
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + own.public, "--service-account-signing-key-file=" + own.private}, args...)...)
	if err != nil {
		return nil, err
	}
	return p, p.connect(ctx, "https://"+server.Address, own.authority, token)
}

func (p *Plane) start(dir, binary string, args ...string) error {
	process, err := Start(filepath.Join(dir, filepath.Base(binary)+".log"), exec.Command(binary, args...))
	if err != nil {
		return err
	}
	p.processes = append(p.processes, process)
	return nil
}

// Stop kills the processes.
func (p *Plane) Stop() {
	for _, process := range p.processes {
		process.Kill()
	}
	for _, port := range p.ports {
		port.Release()
	}
}

func (p *Plane) connect(ctx context.Context, server, authority, token string) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	config := clientcmdapi.NewConfig()
	config.Clusters["plane"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: authority}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["plane"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "admin"}
	config.CurrentContext = "plane"
	if err := clientcmd.WriteToFile(*config, p.Kubeconfig); err != nil {
		return err
	}
	return Poll(ctx, func(ctx context.Context) error {
		for _, process := range p.processes {
			if err := process.Alive(); err != nil {
				return err
			}
		}
		access, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
		if err != nil {
			return err
		}
		access.QPS = -1
		if p.Client, err = kubernetes.NewForConfig(rest.AddUserAgent(access, "harness")); err != nil {
			return err
		}
		_, err = p.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err
	})
}

// credentials are paths of files that the API server reads, and the authority that clients trust.
type credentials struct {
	authority, certificate, key string
	// public and private are the key pair of service account tokens.
	public, private string
	tokens          string
}

// writeCredentials writes the files before any process reads them: clients cache an incomplete authority for minutes.
func writeCredentials(dir, token string) (credentials, error) {
	authority, err := pki.New(time.Now)
	if err != nil {
		return credentials{}, err
	}
	server, err := authority.Issue(pki.Subject{User: "kube-apiserver", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		return credentials{}, err
	}
	private, public, err := pki.SigningKey()
	if err != nil {
		return credentials{}, err
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(path, content, 0o600))
		return path
	}
	c := credentials{
		authority: write("ca.crt", authority.Certificate()), certificate: write("apiserver.crt", server.Certificate), key: write("apiserver.key", server.Key),
		public: write("accounts.pub", public), private: write("accounts.key", private),
		tokens: write("tokens.csv", []byte(token+",admin,admin,system:masters\n")),
	}
	return c, err
}
