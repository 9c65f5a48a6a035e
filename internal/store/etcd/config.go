package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/plimsoll-dev/plimsoll"
)

// The defaults of Config.
const (
	DefaultPrefix    = "/plimsoll/"
	DefaultTTL       = MinTTL
	DefaultRetention = 5 * time.Minute
)

// MinTTL is the shortest lease. etcd with its default election timeout of a second grants no
// shorter one: a lease must outlive an election of etcd's own leader.
const MinTTL = 2 * time.Second

const (
	maxTTL       = 5 * time.Minute
	minRetention = time.Minute
	maxPrefix    = 64 // bytes

	// A dead connection is found after their sum. etcd refuses pings more often than every 5 s.
	pingEvery   = 10 * time.Second
	pingTimeout = 3 * time.Second

	pageTimeout = 5 * time.Second // of one page of a load
)

// Config says where the cluster of etcd is. Zero values have defaults, except for Endpoints.
type Config struct {
	Endpoints []string // such as https://host:2379 or unix:///run/etcd.sock; all of one scheme
	Prefix    string   // of all keys of this store; it ends with a slash

	// CAFile has the certificates that etcd's are checked with; empty: those of the system.
	// CertFile and KeyFile prove who this process is; both or neither.
	CAFile, CertFile, KeyFile string
	Username, Password        string // of etcd's own users; both or neither

	// TTL is the time after which another leads if this process falls silent. It is at least MinTTL
	// and counts in whole seconds.
	TTL time.Duration
	// Advertise is the address at which this process is reached while it leads.
	Advertise string
	// Retention is the age of the revisions that the leader lets etcd forget. Negative: the leader
	// leaves that to etcd's own --auto-compaction-retention.
	Retention time.Duration
	// CompactionFailed is called when the leader could not let etcd forget anything. It must not
	// block. Nil: nothing is called.
	CompactionFailed func(error)
	// Silent is called with the number of members that do not answer, when it changes. It must not
	// block. Nil: nothing is called.
	Silent func(members int)

	Logger *slog.Logger // default: nothing is logged

	adjust func(*clientv3.Config) // changes the settings of each client; nil: nothing does
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports the first field that is wrong.
func (c Config) Validate() error {
	c = c.withDefaults()
	if len(c.Endpoints) == 0 {
		return plimsoll.Invalid(
			"etcd.endpoints", "is empty; name the client addresses of etcd, such as https://host:2379",
		)
	}
	if err := c.validateEndpoints(); err != nil {
		return err
	}
	switch {
	case !strings.HasSuffix(c.Prefix, "/") || len(c.Prefix) > maxPrefix:
		return plimsoll.Invalid(
			"etcd.prefix", "%q does not end with a slash, or has more than %d bytes; take one such as %s", c.Prefix,
			maxPrefix, DefaultPrefix,
		)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return plimsoll.Invalid("etcd.certFile", "and etcd.keyFile belong together; set both or neither")
	case (c.Username == "") != (c.Password == ""):
		return plimsoll.Invalid("etcd.username", "and etcd.password belong together; set both or neither")
	case c.TTL < MinTTL || c.TTL > maxTTL || c.TTL%time.Second != 0:
		return plimsoll.Invalid(
			"etcd.ttl", "is %s, which is not in whole seconds between %s and %s", c.TTL, MinTTL, maxTTL,
		)
	case c.Retention > 0 && c.Retention < minRetention:
		return plimsoll.Invalid(
			"etcd.retention", "is %s; take at least %s, so that a load can end, or a negative one for none",
			c.Retention, minRetention,
		)
	}
	return nil
}

func (c Config) validateEndpoints() error {
	scheme := ""
	for i, endpoint := range c.Endpoints {
		field := fmt.Sprintf("etcd.endpoints[%d]", i)
		u, err := url.Parse(endpoint)
		switch {
		case err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Path != "":
			return plimsoll.Invalid(
				field, "%q is not an address such as https://host:2379 or unix:///run/etcd.sock", endpoint,
			)
		}
		if scheme == "" {
			scheme = u.Scheme
		}
		switch {
		case u.Scheme != scheme:
			return plimsoll.Invalid(field, "is %s and another one is %s; take the same for all", u.Scheme, scheme)
		case scheme != "https" && c.CAFile+c.CertFile != "":
			return plimsoll.Invalid(field, "is %s, where the certificates have no effect; take https", scheme)
		case scheme == "http" && c.Password != "":
			return plimsoll.Invalid(field, "is http, which would send the password in the clear; take https")
		}
	}
	return nil
}

// callTimeout bounds one call to etcd. A call that hangs at one member is made at another then.
func (c Config) callTimeout() time.Duration { return c.TTL / 2 }

func (c Config) tls() (*tls.Config, error) {
	if !strings.HasPrefix(c.Endpoints[0], "https:") {
		return nil, nil //nolint:nilnil // the client takes nil for no TLS
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, plimsoll.Invalid("etcd.caFile", "cannot be read: %v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, plimsoll.Invalid("etcd.caFile", "%s has no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, plimsoll.Invalid("etcd.certFile", "and etcd.keyFile cannot be used: %v", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// client returns the settings of a client of all endpoints.
func (c Config) client() (clientv3.Config, error) {
	tlsConfig, err := c.tls()
	if err != nil {
		return clientv3.Config{}, err
	}
	settings := clientv3.Config{
		Endpoints: c.Endpoints, TLS: tlsConfig, Username: c.Username, Password: c.Password,
		DialTimeout: c.callTimeout(), DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout,
		MaxCallRecvMsgSize: maxAnswerBytes, Logger: zap.NewNop(),
		// A connection that rests makes its resolver anew. No change of endpoints may meet that.
		DialOptions: []grpc.DialOption{grpc.WithIdleTimeout(0)},
	}
	if c.adjust != nil {
		c.adjust(&settings)
	}
	return settings, nil
}

// dial validates the configuration and makes a client. The versions of etcd are checked: at least
// one member must answer, and none of those that answer may be one that breaks the guarantees.
func dial(ctx context.Context, c Config) (*clientv3.Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	settings, err := c.client()
	if err != nil {
		return nil, err
	}
	client, err := connect(ctx, settings)
	if err != nil {
		return nil, c.unreachable("connect to etcd", err)
	}
	if err := c.checkVersions(ctx, client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	// The first call makes the resolver of the connection. From then on the endpoints may change.
	// Its answer does not count: a member that hangs gives none.
	call, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	_, _ = client.Get(call, c.Prefix+metaKey, clientv3.WithCountOnly())
	return client, nil
}

// connect makes a client. One for a user of etcd shows the password to some member at once. If that
// one is silent, each is asked in turn.
func connect(ctx context.Context, settings clientv3.Config) (*clientv3.Client, error) {
	client, err := clientv3.New(settings)
	for _, endpoint := range settings.Endpoints {
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
		only := settings
		only.Endpoints = []string{endpoint}
		if client, err = clientv3.New(only); err == nil {
			client.SetEndpoints(settings.Endpoints...)
		}
	}
	return client, err
}

// unreachable words a failed call to etcd. An error of the caller's context is returned as it is.
func (c Config) unreachable(op string, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", op, err)
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: op, Err: err, Msg: adviceIfFull}
	}
	return &plimsoll.Error{Code: plimsoll.CodeUnavailable, Op: op, Err: err, Msg: fmt.Sprintf(
		"etcd at %s did not answer as it should; see whether a majority of its members runs",
		strings.Join(c.Endpoints, ", "))}
}

const adviceIfFull = "etcd's database is full, and its NOSPACE alarm refuses all writes: " +
	"compact and defragment it, or give it a larger --quota-backend-bytes, then disarm the alarm"
