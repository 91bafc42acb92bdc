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
)

const allowPause = 50 * time.Millisecond

// admin is who the lab's user is.
func admin() pki.Subject {
	return pki.Subject{User: "tessera-lab-admin", Groups: []string{"system:masters"}}
}

// allow gives the parts of the control plane the rights that an API server does not give by itself, as soon
// as it takes them: the scheduler is not ready without its own.
func (l *Lab) allow(ctx context.Context) error {
	bindings, err := schedulerBindings()
	if err != nil {
		return err
	}
	bindings = append(bindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletClient}, // it reads logs and runs commands on the nodes
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClient}},
	})
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, binding := range bindings {
		if err := l.bind(ctx, binding); err != nil {
			return err
		}
	}
	return nil
}

// bind creates a binding. Until its namespace is there, and the API server itself, it is tried again.
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

// schedulerBindings are what deployments/ gives the scheduler beyond its own namespace, which a lab does not
// have at its start.
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
