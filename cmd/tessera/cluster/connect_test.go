package cluster

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/internal/capability"
	"github.com/tessera-gpu/tessera/internal/capability/capabilitytest"
)

// flagsFor returns flags that select an API server.
func flagsFor(t *testing.T, url string) *Flags {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: url}, &clientcmdapi.Context{Cluster: "c"}, "c"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	flags := NewFlags()
	*flags.KubeConfig = file
	return flags
}

func TestConnectSupportedRefusesOldServers(t *testing.T) {
	if _, err := flagsFor(t, capabilitytest.Serve(t, capabilitytest.Kubernetes134())).ConnectSupported(); !errors.Is(err, capability.ErrTooOld) {
		t.Errorf("Kubernetes 1.34: %v, want ErrTooOld", err)
	}
	c, err := flagsFor(t, capabilitytest.Serve(t, capabilitytest.Kubernetes136())).ConnectSupported()
	if err != nil || c.Server == nil || c.Server.TaintRules {
		t.Errorf("Kubernetes 1.36: %+v, %v", c, err)
	}
	if _, err := flagsFor(t, "http://127.0.0.1:1").ConnectSupported(); err == nil || !strings.Contains(err.Error(), "The API server is not reachable") {
		t.Errorf("no response: %v", err)
	}
}
