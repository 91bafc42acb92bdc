package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tessera-gpu/tessera/e2e/env/lab/binaries"
	"github.com/tessera-gpu/tessera/e2e/env/lab/pki"
	"github.com/tessera-gpu/tessera/e2e/env/lab/recipe"
)

const allowPause = 50 * time.Millisecond

// admin returns the subject of the lab's user.
func admin() pki.Subject {
	return pki.Subject{User: "tessera-lab-admin", Groups: []string{"system:masters"}}
}

// allow grants the control plane components the permissions that are not built into the API server, as soon as the API
// server accepts requests: tessera-scheduler does not become ready without its permissions. A control plane with
// kube-scheduler has no object of Tessera.
func (l *Lab) allow(ctx context.Context, cluster recipe.Cluster) error {
	bindings := []runtime.Object{&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletClient}, // reads logs and runs commands on the nodes
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClient}},
	}}
	if !cluster.StockScheduler {
		own, err := schedulerBindings()
		if err != nil {
			return err
		}
		bindings = append(bindings, own...)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, binding := range bindings {
		if err := l.bind(ctx, binding); err != nil {
			return err
		}
	}
	return nil
}

// bind creates a binding. It retries while the namespace or the API server is not available.
func (l *Lab) bind(ctx context.Context, binding runtime.Object) error {
	rbac := l.client.RbacV1()
	var last error
	err := wait.PollUntilContextCancel(ctx, allowPause, true, func(ctx context.Context) (bool, error) {
		switch b := binding.(type) {
		case *rbacv1.ClusterRoleBinding:
			_, last = rbac.ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, last = rbac.RoleBindings(b.Namespace).Create(ctx, b, metav1.CreateOptions{})
		}
		return last == nil || apierrors.IsAlreadyExists(last), nil
	})
	if err != nil {
		return fmt.Errorf("give the control plane its rights: %w: %w", err, last)
	}
	return nil
}

// schedulerBindings returns the bindings of the scheduler in deployments/ outside its own namespace, which does not
// exist when a lab starts.
func schedulerBindings() ([]runtime.Object, error) {
	source, err := binaries.Source()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(source, "deployments", "scheduler", "common", "rbac.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's rights: %w", err)
	}
	var bindings []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return bindings, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the scheduler's rights: %w", err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("read the scheduler's rights: %w", err)
		}
		switch b := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			bindings = append(bindings, b)
		case *rbacv1.RoleBinding:
			if b.Namespace == metav1.NamespaceSystem {
				bindings = append(bindings, b)
			}
		}
	}
}
