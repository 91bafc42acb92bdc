package lab

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
	"github.com/tessera-gpu/tessera/e2e/env/lab/pki"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

// kubeletClient is the user of the API server towards kubelets.
const kubeletClient = "kube-apiserver-kubelet-client"

// credentials issues the certificates of the cluster's components. Every component has its own identity, so that
// permissions apply as in a production cluster.
type credentials struct {
	authority *pki.Authority
	server    string
}

func newCredentials(server string) (credentials, error) {
	authority, err := pki.New(time.Now)
	return credentials{authority: authority, server: server}, err
}

// controlPlane returns the files of the control plane that serves under the given addresses.
func (c credentials) controlPlane(addresses ...netip.Addr) ([]machine.File, error) {
	server, err := c.authority.Issue(pki.Subject{
		User:      "kube-apiserver",
		DNS:       []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		Addresses: addresses,
	})
	if err != nil {
		return nil, err
	}
	kubelet, err := c.authority.Issue(pki.Subject{User: kubeletClient})
	if err != nil {
		return nil, err
	}
	proxy, err := c.authority.Issue(pki.Subject{User: recipe.FrontProxyUser})
	if err != nil {
		return nil, err
	}
	private, public, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}
	files := []machine.File{
		secret(recipe.CACertificate, c.authority.Certificate()),
		secret(recipe.ServerCertificate, server.Certificate), secret(recipe.ServerKey, server.Key),
		secret(recipe.KubeletCertificate, kubelet.Certificate), secret(recipe.KubeletKey, kubelet.Key),
		secret(recipe.FrontProxyCertificate, proxy.Certificate), secret(recipe.FrontProxyKey, proxy.Key),
		secret(recipe.AccountKey, private), secret(recipe.AccountPublicKey, public),
	}
	for component, user := range map[string]string{
		recipe.ControllerManager: "system:kube-controller-manager", recipe.Scheduler: recipe.SchedulerUser, recipe.StockScheduler: "system:kube-scheduler",
	} {
		kubeconfig, err := c.kubeconfig(pki.Subject{User: user})
		if err != nil {
			return nil, err
		}
		files = append(files, secret(recipe.KubeconfigFile(component), kubeconfig))
	}
	return files, nil
}

// node returns the files of a worker node.
func (c credentials) node(node recipe.Node) ([]machine.File, error) {
	server, err := c.authority.Issue(pki.Subject{User: node.Name, DNS: []string{node.Name}, Addresses: []netip.Addr{node.Address}})
	if err != nil {
		return nil, err
	}
	kubelet, err := c.kubeconfig(pki.Subject{User: "system:node:" + node.Name, Groups: []string{"system:nodes"}})
	if err != nil {
		return nil, err
	}
	proxy, err := c.kubeconfig(pki.Subject{User: "system:kube-proxy"})
	if err != nil {
		return nil, err
	}
	return []machine.File{
		secret(recipe.CACertificate, c.authority.Certificate()),
		secret(recipe.ServerCertificate, server.Certificate), secret(recipe.ServerKey, server.Key),
		secret(recipe.KubeconfigFile(recipe.Kubelet), kubelet),
		secret(recipe.KubeconfigFile(recipe.Proxy), proxy),
	}, nil
}

// kubeconfig returns a complete kubeconfig file for a client.
func (c credentials) kubeconfig(subject pki.Subject) ([]byte, error) {
	pair, err := c.authority.Issue(subject)
	if err != nil {
		return nil, err
	}
	const name = "tessera-lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.server, CertificateAuthorityData: c.authority.Certificate()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("render the kubeconfig of %s: %w", subject.User, err)
	}
	return text, nil
}

func secret(path string, content []byte) machine.File {
	return machine.File{Path: path, Content: content, Mode: 0o600}
}
