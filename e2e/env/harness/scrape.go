package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// StatusError is the HTTP status of a refused request.
type StatusError int

func (s StatusError) Error() string { return fmt.Sprintf("the request is refused: %d", int(s)) }

// Scrape returns the metrics that a process serves at the address, as Get does.
func Scrape(ctx context.Context, address, token string) (string, error) {
	return Get(ctx, address, "/metrics", token)
}

// Get returns what a process serves at the address over TLS, to a client with the token that does not check the certificate. Empty is no token. The error of a
// refusal is a StatusError.
func Get(ctx context.Context, address, path, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate is self-signed
	}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK {
		return "", StatusError(response.StatusCode)
	}
	return string(text), err
}

// ScrapeToken returns a token of a service account in the namespace default, which has the ClusterRole. Empty is no role. Account and binding are created
// unless they exist.
func ScrapeToken(ctx context.Context, client kubernetes.Interface, name, role string) (string, error) {
	const namespace = metav1.NamespaceDefault
	meta := metav1.ObjectMeta{Name: name}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	if role != "" {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token for scrapes: %w", err)
	}
	return token.Status.Token, nil
}

// CheckScrapes checks that the process at the address serves metrics to an account with the ClusterRole tessera-metrics-reader, and to no other. It waits until
// the process serves, and until the role is in effect.
func CheckScrapes(ctx context.Context, client kubernetes.Interface, address, name string) error {
	reader, err := ScrapeToken(ctx, client, name, "tessera-metrics-reader")
	if err != nil {
		return err
	}
	other, err := ScrapeToken(ctx, client, name+"-other", "")
	if err != nil {
		return err
	}
	if err := Poll(ctx, func(ctx context.Context) error {
		text, err := Scrape(ctx, address, reader)
		if err == nil && text == "" {
			err = errors.New("the scrape is empty")
		}
		return err
	}); err != nil {
		return fmt.Errorf("with the role: %w", err)
	}
	for token, want := range map[string]StatusError{"": http.StatusUnauthorized, "invalid": http.StatusUnauthorized, other: http.StatusForbidden} {
		if _, err := Scrape(ctx, address, token); !errors.Is(err, want) {
			return fmt.Errorf("a client without the role got %s, want %w", fmt.Sprint(err), want)
		}
	}
	return nil
}
