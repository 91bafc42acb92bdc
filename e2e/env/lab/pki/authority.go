// Package pki issues the certificates of a lab: one authority for servers and clients.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"time"
)

// lifetime is the validity of every certificate: most labs run for hours, but may be kept longer.
const lifetime = 365 * 24 * time.Hour

// Authority signs certificates. It has no state except its key and may be used concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
	now         func() time.Time
}

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Subject is the identity of a certificate and the names of the server. Without names the certificate is for clients
// only.
type Subject struct {
	User      string
	Groups    []string
	DNS       []string
	Addresses []netip.Addr
}

// New creates an authority with a new key.
func New(now func() time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	template, err := template(pkix.Name{CommonName: "tessera-lab"}, now())
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &Authority{certificate: certificate, key: key, pem: encode("CERTIFICATE", der), now: now}, nil
}

// Certificate returns the authority's own certificate, PEM.
func (a *Authority) Certificate() []byte { return a.pem }

// Issue signs a certificate for the subject with a new key.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	template, err := template(pkix.Name{CommonName: subject.User, Organization: subject.Groups}, a.now())
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.DNSNames = subject.DNS
	for _, address := range subject.Addresses {
		template.IPAddresses = append(template.IPAddresses, address.AsSlice())
	}
	if len(template.DNSNames)+len(template.IPAddresses) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, fmt.Errorf("generate the key of %s: %w", subject.User, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", subject.User, err)
	}
	return Pair{Certificate: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

// SigningKey creates a key pair without a certificate for service account tokens: private and public key, PEM.
func SigningKey() (private, public []byte, err error) {
	key, private, err := newKey()
	if err != nil {
		return nil, nil, fmt.Errorf("generate a signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode a public key: %w", err)
	}
	return private, encode("PUBLIC KEY", der), nil
}

func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func template(name pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    now.Add(-time.Hour), // tolerates a clock that is set back by less than an hour
		NotAfter:     now.Add(lifetime),
	}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
