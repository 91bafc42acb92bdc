package harness

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/e2e/lab/binaries"
)

// Plane is an API server on loopback without any node or controller.
type Plane struct {
	// Client is an administrator without a rate limit.
	Client kubernetes.Interface
	// Kubeconfig is the path of the same access as a file.
	Kubeconfig string
	processes  []*Process
}

// StartPlane starts etcd and the API server in dir and waits until it answers. Stop ends them.
func StartPlane(ctx context.Context, dir string, programs binaries.Folders) (_ *Plane, err error) {
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	p := &Plane{Kubeconfig: filepath.Join(dir, "kubeconfig")}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	token, key, tokens := rand.Text(), filepath.Join(dir, "key.pem"), filepath.Join(dir, "tokens.csv")
	if err := errors.Join(writeKey(key), os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600)); err != nil {
		return nil, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	err = p.start(dir, filepath.Join(programs["etcd"], "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", ports[1]))
	if err != nil {
		return nil, err
	}
	err = p.start(dir, filepath.Join(programs["kubernetes"], "kube-apiserver"), "--etcd-servers="+etcd, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir="+filepath.Join(dir, "certificates"), "--token-auth-file="+tokens,
		"--authorization-mode=RBAC", "--allow-privileged", "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	if err != nil {
		return nil, err
	}
	return p, p.connect(ctx, fmt.Sprintf("https://127.0.0.1:%d", ports[2]), filepath.Join(dir, "certificates", "apiserver.crt"), token)
}

func (p *Plane) start(dir, binary string, args ...string) error {
	process, err := Start(filepath.Join(dir, filepath.Base(binary)+".log"), exec.Command(binary, args...))
	if err != nil {
		return err
	}
	p.processes = append(p.processes, process)
	return nil
}

// Stop ends the processes as crashes do.
func (p *Plane) Stop() {
	for _, process := range p.processes {
		process.Kill()
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

// FreePorts returns ports of loopback on which nobody listens at the moment.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // it only held the port
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("listen on loopback: got the address %v", listener.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}

// writeKey writes a fresh key for service account tokens, which nobody uses.
func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
