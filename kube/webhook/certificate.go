package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// How far the clocks of two machines may differ.
const clockSkew = 5 * time.Minute

// material is what the webhook's Secret holds, in PEM form: the authorities to believe, the newest first, and the
// certificate and key to serve with.
type material struct {
	authorities []byte
	certificate []byte
	key         []byte
}

// issue makes an authority and a certificate for these DNS names, both valid for `lifetime` from `now`. The authority's
// key is thrown away, so that it signs nothing else. The newest authority of `before` stays believed while it is valid:
// other replicas serve its certificate a little longer.
func issue(names []string, now time.Time, lifetime time.Duration, before []byte) (material, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return material{}, err
	}
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return material{}, err
	}
	from, until := now.Add(-clockSkew), now.Add(lifetime)
	// Each authority has a name of its own: a chain is found by names.
	authority := &x509.Certificate{SerialNumber: number, NotBefore: from, NotAfter: until, IsCA: true,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("gpu-scheduler webhook authority %x", number)},
		BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign}
	signed, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return material{}, err
	}
	if authority, err = x509.ParseCertificate(signed); err != nil {
		return material{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return material{}, err
	}
	server := &x509.Certificate{SerialNumber: new(big.Int).Add(number, big.NewInt(1)), NotBefore: from, NotAfter: until,
		Subject: pkix.Name{CommonName: "gpu-scheduler webhook"}, DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	served, err := x509.CreateCertificate(rand.Reader, server, authority, key.Public(), authorityKey)
	if err != nil {
		return material{}, err
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return material{}, err
	}
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	if older, parsed := newestAuthority(before); parsed != nil && now.Before(parsed.NotAfter) {
		authorities = append(authorities, older...)
	}
	return material{authorities: authorities,
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes})}, nil
}

// newestAuthority is the first of the list, in PEM form and parsed; nil when there is none.
func newestAuthority(authorities []byte) ([]byte, *x509.Certificate) {
	block, _ := pem.Decode(authorities)
	if block == nil {
		return nil, nil
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil
	}
	return pem.EncodeToMemory(block), parsed
}

// pair is what is served with; its Leaf is set.
func (m material) pair() (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(m.certificate, m.key)
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

// check says why the material cannot be served with under these names, or will not be for long; nil when it can.
func (m material) check(names []string, now time.Time, remaining time.Duration) error {
	pair, err := m.pair()
	if err != nil {
		return err
	}
	believed := x509.NewCertPool()
	if !believed.AppendCertsFromPEM(m.authorities) {
		return errors.New("there is no authority")
	}
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: believed, CurrentTime: now}); err != nil {
			return err
		}
	}
	if now.Add(remaining).After(pair.Leaf.NotAfter) {
		return fmt.Errorf("it ends at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

func (m material) equal(other material) bool {
	return bytes.Equal(m.authorities, other.authorities) && bytes.Equal(m.certificate, other.certificate) &&
		bytes.Equal(m.key, other.key)
}
