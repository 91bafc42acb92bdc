package recipe

import (
	"fmt"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// ControlPlaneName is the host name of the machine with the control plane.
const ControlPlaneName = "control-plane"

// Cluster has the settings that all parts of a cluster share.
type Cluster struct {
	Plan  address.Plan
	Gates Gates
	// RuntimeConfig enables or disables API versions, as the flag --runtime-config of kube-apiserver.
	RuntimeConfig string
	// StockScheduler runs kube-scheduler with its defaults in the place of tessera-scheduler.
	StockScheduler bool
	// PodControlGroups gives each pod a parent control group, which the lab does not need otherwise: it sets no resource limits. Without them, kubelet 1.36
	// panics when it starts the second container of a pod whose containers have requests, because it compares their resources with those of the group.
	PodControlGroups bool
	// Audit makes the API server log every request, without bodies.
	Audit bool
}

// AuditLog is the path of the API server's audit log.
const AuditLog = "/var/log/kubernetes/audit.log"

const auditPolicy = Config + "/audit-policy.yaml"

// ControlPlane returns the machine that runs etcd, the API server, the controllers and the scheduler. The caller adds
// certificates and kubeconfigs.
func ControlPlane(cluster Cluster) machine.Spec {
	files := append(network(ControlPlaneName), config(auditPolicy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"))
	return machine.Spec{
		Name:     ControlPlaneName,
		Files:    files,
		Settings: []machine.File{setting("/proc/sys/net/ipv4/ip_forward", "1")}, // routes between the nodes' pods
		Path:     Path(),
		Services: []machine.Service{etcd(), apiServer(cluster), controllerManager(cluster), scheduler(cluster)},
	}
}

func etcd() machine.Service {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return machine.Service{
		Name: Etcd,
		Args: []string{
			"etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		},
		Ready: machine.Probe{URL: client + "/readyz"},
	}
}

func apiServer(cluster Cluster) machine.Service {
	address := cluster.Plan.ControlPlane().String()
	args := []string{
		"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=" + address, "--advertise-address=" + address, fmt.Sprintf("--secure-port=%d", APIServerPort),
		"--service-cluster-ip-range=" + cluster.Plan.Services().String(),
		"--tls-cert-file=" + ServerCertificate, "--tls-private-key-file=" + ServerKey, "--client-ca-file=" + CACertificate,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + AccountKey, "--service-account-key-file=" + AccountPublicKey,
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority=" + CACertificate,
		"--kubelet-client-certificate=" + KubeletCertificate, "--kubelet-client-key=" + KubeletKey,
		"--enable-aggregator-routing", // requests to webhooks and aggregated APIs go to pods: this machine has no kube-proxy
		"--proxy-client-cert-file=" + FrontProxyCertificate, "--proxy-client-key-file=" + FrontProxyKey,
		"--requestheader-client-ca-file=" + CACertificate, "--requestheader-allowed-names=" + FrontProxyUser,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
	if cluster.RuntimeConfig != "" {
		args = append(args, "--runtime-config="+cluster.RuntimeConfig)
	}
	if cluster.Audit {
		// One file without rotation: counting requests requires the complete log.
		args = append(args, "--audit-log-path="+AuditLog, "--audit-log-maxsize=0", "--audit-policy-file="+auditPolicy)
	}
	return machine.Service{
		Name:  APIServer,
		Args:  append(args, cluster.Gates.flag()...),
		Needs: []string{Etcd},
		Ready: machine.Probe{URL: Server(cluster.Plan) + "/readyz"},
		Grace: 2 * time.Second, // otherwise it waits a minute for its watchers to disconnect
	}
}

func controllerManager(cluster Cluster) machine.Service {
	args := []string{
		"kube-controller-manager", "--kubeconfig=" + KubeconfigFile(ControllerManager), "--bind-address=127.0.0.1", "--leader-elect=false",
		"--use-service-account-credentials", "--service-account-private-key-file=" + AccountKey, "--root-ca-file=" + CACertificate,
	}
	return machine.Service{
		Name:  ControllerManager,
		Args:  append(args, cluster.Gates.flag()...),
		Needs: []string{APIServer},
		Ready: machine.Probe{URL: "https://127.0.0.1:10257/healthz"},
	}
}

func scheduler(cluster Cluster) machine.Service {
	name, config := Scheduler, "--config="+SchedulerConfig
	if cluster.StockScheduler {
		name, config = StockScheduler, "--kubeconfig="+KubeconfigFile(StockScheduler)
	}
	args := []string{name, config, "--bind-address=127.0.0.1", "--leader-elect=false"}
	return machine.Service{
		Name:  name,
		Args:  append(args, cluster.Gates.flag()...),
		Needs: []string{APIServer},
		Ready: machine.Probe{URL: "https://127.0.0.1:10259/readyz"},
	}
}
