package installer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tessera-gpu/tessera/e2e/env/harness"
	"github.com/tessera-gpu/tessera/installer/controller"
)

// TestInstallerIsLive: the probe of the chart succeeds, before the installer is elected and while it leads.
func TestInstallerIsLive(t *testing.T) {
	s := newSite(t)
	program := filepath.Join(t.TempDir(), "tessera-installer")
	if err := harness.Build(t.Context(), program, "./cmd/tessera-installer"); err != nil {
		t.Fatal(err)
	}
	leases := s.plane.Client.CoordinationV1().Leases(home)
	now := metav1.NowMicro()
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: controller.Lease}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: &now, RenewTime: &now, LeaseTransitions: new(int32(0)),
	}}
	if _, err := leases.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	images := filepath.Join(t.TempDir(), "images.yaml")
	if err := os.WriteFile(images, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	log := filepath.Join(t.TempDir(), "installer.log")
	p, err := harness.Start(log, exec.Command(program, "--namespace="+home, "--images="+images, "--leader-elect", "--metrics-address=0",
		"--health-address="+address, "--kubeconfig="+s.kubeconfig(t, s.as(t, "tessera-installer", "node1"))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	live := func(ctx context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		return getHealth(ctx, address)
	}
	if err := harness.Poll(ctx, live); err != nil {
		text, _ := os.ReadFile(log)
		t.Fatalf("it is not live without the lease: %v\n%s", err, text)
	}
	if err := leases.Delete(ctx, controller.Lease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := harness.Poll(ctx, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, controller.Lease, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = fmt.Errorf("lease %s has no holder", lease.Name)
		}
		return err
	}); err != nil {
		t.Fatalf("it is not elected: %v", err)
	}
	if err := live(ctx); err != nil {
		t.Errorf("it is not live as the leader: %v", err)
	}
}

// freeAddress returns an address of this machine on which no program listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // it has no connections
	return listener.Addr().String()
}

func getHealth(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it is read only
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz: %s", response.Status)
	}
	return nil
}
