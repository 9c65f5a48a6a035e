package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// ClientName is the name in the certificate of Files. etcd takes it as the name of a user, if it
// has users and asks clients for certificates.
const ClientName = "plimsoll"

// Files are certificates and a key of clients, in PEM form.
type Files struct {
	CA        string // of the certificates of members and of clients
	Cert, Key string // of a client that is named ClientName
}

// StartTLS is Start with members that take clients by TLS alone. With the flag --client-cert-auth
// they take only clients that have a certificate.
func StartTLS(t testing.TB, members int, flags ...string) *Cluster {
	t.Helper()
	dir := t.TempDir()
	ca := makeCA(t)
	f := &Files{CA: filepath.Join(dir, "ca.pem")}
	writePEM(t, f.CA, "CERTIFICATE", ca.cert.Raw)
	f.Cert, f.Key = ca.issue(t, dir, ClientName)
	cert, key := ca.issue(t, dir, "member")
	flags = append([]string{"--cert-file", cert, "--key-file", key}, flags...)
	if slices.Contains(flags, "--client-cert-auth") {
		flags = append(flags, "--trusted-ca-file", f.CA) // with it, etcd asks all clients for certificates
	}
	return startAll(t, members, setup{disk: noDisk, files: f, flags: flags})
}

// config returns the settings of a client.
func (f *Files) config(t testing.TB) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the certificate is not in PEM form")
	}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func makeCA(t testing.TB) authority {
	t.Helper()
	a := authority{key: makeKey(t)}
	template := certificate("the CA of a test", 1)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = sign(t, template, template, &a.key.PublicKey, a.key)
	return a
}

// issue writes a certificate for a name, and its key. It is for both sides of a connection: etcd is
// its own client too.
func (a authority) issue(t testing.TB, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key := makeKey(t)
	template := certificate(name, 2)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert := sign(t, template, a.cert, &key.PublicKey, a.key)
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	writePEM(t, certFile, "CERTIFICATE", cert.Raw)
	writePEM(t, keyFile, "EC PRIVATE KEY", encoded)
	return certFile, keyFile
}

func certificate(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func makeKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey,
) *x509.Certificate {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t testing.TB, file, kind string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
}
