package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"
	"time"
)

func TestIssuedCertificatesVerify(t *testing.T) {
	authority, err := New(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Subject{
		User:      "system:node:node1",
		Groups:    []string{"system:nodes"},
		DNS:       []string{"node1"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.64.0.10")},
	})
	if err != nil {
		t.Fatal(err)
	}
	leaf := parse(t, pair)
	if leaf.Subject.CommonName != "system:node:node1" || len(leaf.Subject.Organization) != 1 || leaf.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject is %v", leaf.Subject)
	}
	for _, name := range []string{"node1", "10.64.0.10"} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			options := x509.VerifyOptions{Roots: pool(t, authority), DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}}
			if _, err := leaf.Verify(options); err != nil {
				t.Errorf("verify for %s, usage %d: %v", name, usage, err)
			}
		}
	}
	if err := leaf.VerifyHostname("node2"); err == nil {
		t.Error("the certificate of node1 is good for node2")
	}
}

func TestClientCertificatesCannotServe(t *testing.T) {
	authority, err := New(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Subject{User: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	options := x509.VerifyOptions{Roots: pool(t, authority), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := parse(t, pair).Verify(options); err == nil {
		t.Error("a client certificate was accepted as a server's")
	}
}

func TestAuthoritiesDoNotTrustEachOther(t *testing.T) {
	ours, err := New(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := New(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := theirs.Issue(Subject{User: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	options := x509.VerifyOptions{Roots: pool(t, ours), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := parse(t, pair).Verify(options); err == nil {
		t.Error("a certificate of another lab was accepted")
	}
}

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	loaded, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Leaf
}

func pool(t *testing.T, authority *Authority) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority.Certificate()) {
		t.Fatal("the authority's certificate is not PEM")
	}
	return roots
}
