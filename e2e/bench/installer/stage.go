package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tessera-gpu/tessera/e2e/env/chart"
	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

const (
	namespace = "tessera-system"
	account   = "tessera-installer"
	// metricsAddress is the address of the installer's metrics.
	metricsAddress = "127.0.0.1:18089"
)

// stages configure how kwok creates, ends and removes nodes and pods.
//
//go:embed stages.yaml
var stages []byte

// stage is a control plane with the chart installed, kwok, and the installer as a process with its own account.
type stage struct {
	*cluster.Cluster
	folder    string
	kwok      *harness.Process
	installer *harness.Process
	players   *players
	audit     *audits
}

// raise starts everything except the fleet.
func raise(ctx context.Context, b *bench, labFolder, folder string) (_ *stage, err error) {
	s := &stage{folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(context.WithoutCancel(ctx)))
		}
	}()
	b.Doing("building kwok and the installer")
	err = errors.Join(
		harness.BuildIn(ctx, "e2e/bench/modules/kwok", s.path("kwok"), "sigs.k8s.io/kwok/cmd/kwok"),
		harness.Build(ctx, s.path("tessera-installer"), "-trimpath", "./cmd/tessera-installer"),
	)
	if err != nil {
		return nil, err
	}
	b.Doing("starting a control plane")
	l, err := lab.Start(ctx, lab.Config{Folder: labFolder, Audit: true})
	if err != nil {
		return nil, err
	}
	if s.Cluster, err = cluster.Open(l.Folder()); err != nil {
		return nil, err
	}
	s.audit = &audits{plane: s.ControlPlane()}
	if err := s.installChart(ctx); err != nil {
		return nil, err
	}
	if err := errors.Join(s.startKwok(), s.startInstaller(ctx)); err != nil {
		return nil, err
	}
	s.players = play(ctx, s)
	return s, nil
}

func (s *stage) path(name string) string { return filepath.Join(s.folder, name) }

// installChart applies the rendered chart, except the installer's Deployment and the hooks: no node could run them.
func (s *stage) installChart(ctx context.Context) error {
	helm, err := chart.New(ctx)
	if err != nil {
		return err
	}
	objects, err := helm.Template(ctx, namespace, "--include-crds", "--no-hooks")
	if err != nil {
		return err
	}
	var images string
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		if o.GetKind() == "ConfigMap" && o.GetName() == account+"-images" {
			images, _, _ = unstructured.NestedString(o.Object, "data", "images.yaml")
		}
		return o.GetKind() == "ClusterPolicy" || o.GetKind() == "Deployment" && o.GetName() == account
	})
	if err := os.WriteFile(s.path("images.yaml"), []byte(images), 0o600); err != nil {
		return err
	}
	space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	return s.Apply(ctx, append([]*unstructured.Unstructured{space}, objects...)...)
}

// startKwok starts kwok as the administrator.
func (s *stage) startKwok() (err error) {
	if err := os.WriteFile(s.path("stages.yaml"), stages, 0o600); err != nil {
		return err
	}
	s.kwok, err = harness.Start(s.path("kwok.log"), exec.Command(s.path("kwok"), "--kubeconfig="+s.Kubeconfig(), "--config="+s.path("stages.yaml"),
		"--manage-all-nodes", "--node-lease-duration-seconds=40", "--v=WARN"))
	return err
}

// startInstaller starts the installer with the account of the chart.
func (s *stage) startInstaller(ctx context.Context) error {
	kubeconfig, err := s.actAs(ctx, account)
	if err != nil {
		return err
	}
	s.installer, err = harness.Start(s.path("installer.log"), exec.Command(s.path("tessera-installer"), "--kubeconfig="+kubeconfig,
		"--namespace="+namespace, "--images="+s.path("images.yaml"), "--leader-elect", "--metrics-address="+metricsAddress))
	return err
}

// lastLogLine returns the last line of the installer's log: the log is removed with the bench.
func (s *stage) lastLogLine() string {
	text, err := os.ReadFile(s.path("installer.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// actAs writes a kubeconfig with a token of the account.
func (s *stage) actAs(ctx context.Context, name string) (string, error) {
	seconds := int64((12 * time.Hour).Seconds())
	token, err := s.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token for %s: %w", name, err)
	}
	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		return "", err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path := s.path(name + ".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// end ends all processes and removes the lab.
func (s *stage) end(ctx context.Context) error {
	if s.players != nil {
		s.players.stop()
	}
	for _, process := range []*harness.Process{s.installer, s.kwok} {
		if process != nil {
			process.Kill()
		}
	}
	if s.Cluster == nil {
		return nil
	}
	return s.Down(ctx)
}
