package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificates makes an authority and a certificate of it.
func certificates(t testing.TB) *TLS {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a cluster"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate := write("cert.pem", "CERTIFICATE", der)
	return &TLS{Certificate: certificate, Key: write("key.pem", "PRIVATE KEY", private), CA: certificate}
}

func TestACertificateOfAnotherAuthorityIsRefused(t *testing.T) {
	store := newMemory()
	results := make(chan error, 2)
	for i, files := range []*TLS{certificates(t), certificates(t)} {
		go func() {
			m, err := Open(Config{
				Name: "g", Rank: i, Size: 2, Node: i, Nodes: 2, NodeOf: []int{0, 1}, LeaderOf: []int{0, 1}, NodeNames: []string{"a", "b"},
				Store: store, Timeout: 3 * time.Second, Fail: func(*Fault) {}, Kernel: testKernel, Where: Where{Address: "127.0.0.1"}, TLS: files,
			})
			if m != nil {
				m.Close()
			}
			results <- err
		}()
	}
	first, second := <-results, <-results
	if first == nil || second == nil || !strings.Contains(first.Error()+second.Error(), "certificate") {
		t.Errorf("%v; %v", first, second)
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	_, err := Open(Config{NodeOf: []int{0}, LeaderOf: []int{0}, TLS: &TLS{Certificate: "absent", Key: "absent", CA: "absent"}})
	if err == nil || !strings.Contains(err.Error(), "RAY_TLS_SERVER_CERT") {
		t.Errorf("%v", err)
	}
}
