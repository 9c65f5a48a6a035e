package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd"
	"github.com/plimsoll-dev/plimsoll/internal/transport"
)

// etcdFlags name a cluster of etcd. They belong to the commands that use the store on it.
type etcdFlags struct {
	Etcd             []string `help:"Client addresses of etcd, such as https://10.0.0.1:2379, separated by commas. A coordinator keeps the active state there, so that others can stand by for it; a gateway finds the one that leads." env:"PLIMSOLL_ETCD" placeholder:"URL"`
	EtcdPrefix       string   `help:"Prefix of all keys in etcd; another one for each cluster of Plimsoll." default:"/plimsoll/" env:"PLIMSOLL_ETCD_PREFIX"`
	EtcdCAFile       string   `help:"File with the certificates that etcd's are checked with; default: those of the system." env:"PLIMSOLL_ETCD_CA_FILE" placeholder:"FILE"`
	EtcdCertFile     string   `help:"File with the certificate for etcd." env:"PLIMSOLL_ETCD_CERT_FILE" placeholder:"FILE"`
	EtcdKeyFile      string   `help:"File with the key of that certificate." env:"PLIMSOLL_ETCD_KEY_FILE" placeholder:"FILE"`
	EtcdUser         string   `help:"User of etcd." env:"PLIMSOLL_ETCD_USER" placeholder:"NAME"`
	EtcdPasswordFile string   `help:"File with that user's password." env:"PLIMSOLL_ETCD_PASSWORD_FILE" placeholder:"FILE"`
}

// used reports whether the store is on etcd.
func (f *etcdFlags) used() bool { return len(f.Etcd) > 0 }

// config returns the configuration of a store on etcd. Errors name the flags.
func (f *etcdFlags) config(log *slog.Logger) (etcd.Config, error) {
	c := etcd.Config{
		Endpoints: f.Etcd, Prefix: f.EtcdPrefix, CAFile: f.EtcdCAFile, CertFile: f.EtcdCertFile,
		KeyFile: f.EtcdKeyFile, Username: f.EtcdUser, Logger: log,
	}
	if f.EtcdPasswordFile != "" {
		password, err := os.ReadFile(f.EtcdPasswordFile)
		if err != nil {
			return c, plimsoll.Invalid("--etcd-password-file", "cannot be read: %s", cause(err))
		}
		c.Password = strings.TrimRight(string(password), "\r\n")
	}
	return c, f.named(c.Validate())
}

// named puts the flag in place of the field of an error.
func (f *etcdFlags) named(err error) error {
	var e *plimsoll.Error
	if !errors.As(err, &e) {
		return err
	}
	flags := map[string]string{
		"etcd.prefix": "--etcd-prefix", "etcd.caFile": "--etcd-ca-file", "etcd.certFile": "--etcd-cert-file",
		"etcd.username": "--etcd-user", "etcd.ttl": "--lease",
		"etcd.retention": "--etcd-history",
	}
	flag, ok := flags[e.Field]
	if !ok && strings.HasPrefix(e.Field, "etcd.endpoints") {
		flag, ok = "--etcd", true
	}
	if !ok {
		return err
	}
	named := *e
	named.Field = flag
	return &named
}

// leadershipFlags belong to coordinators that keep their store on etcd.
type leadershipFlags struct {
	etcdFlags
	Advertise   string        `help:"With --etcd: address at which gateways and other coordinators reach this one; default: --listen." env:"PLIMSOLL_ADVERTISE" placeholder:"ADDRESS"`
	EtcdHistory string        `help:"With --etcd: age of the revisions that the leader lets etcd forget, at least 1m. Or none: the leader never does. etcd lets only a user with the role root do it; for another one take none, and give etcd --auto-compaction-retention. Default: 5m." env:"PLIMSOLL_ETCD_HISTORY" placeholder:"DURATION"`
	Lease       time.Duration `help:"With --etcd: silence of the leader after which another takes over; whole seconds, at least 2s." default:"2s" env:"PLIMSOLL_LEASE"`
}

// storeConfig returns the configuration of a coordinator's store. listen is the value of --listen.
func (f *leadershipFlags) storeConfig(listen string, log *slog.Logger) (etcd.Config, error) {
	c, err := f.config(log)
	if err != nil {
		return c, err
	}
	c.TTL, c.Advertise = f.Lease, cmp.Or(f.Advertise, listen)
	if c.Retention, err = f.history(); err != nil {
		return c, err
	}
	if err := f.checkAdvertised(c.Advertise); err != nil {
		return c, err
	}
	return c, f.named(c.Validate())
}

// noEtcdHistory is the value of --etcd-history with which the leader never compacts.
const noEtcdHistory = "none"

// history returns the value of --etcd-history as etcd.Config.Retention has it.
func (f *leadershipFlags) history() (time.Duration, error) {
	switch f.EtcdHistory {
	case "":
		return etcd.DefaultRetention, nil
	case noEtcdHistory:
		return -1, nil
	}
	d, err := readDuration(f.EtcdHistory)
	if err != nil || d <= 0 {
		return 0, plimsoll.Invalid("--etcd-history", "is %q; give a duration such as 5m, or none", f.EtcdHistory)
	}
	return d, nil
}

// checkAdvertised refuses an address that means another process on another machine: processes there
// would show the token of gateways to it.
func (f *leadershipFlags) checkAdvertised(address string) error {
	network, at, err := transport.Split(address)
	if err != nil {
		return plimsoll.Invalid("--advertise", "%q is not an address such as 10.0.0.1:9081", address)
	}
	if host, _, err := net.SplitHostPort(at); network == "tcp" && err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return plimsoll.Invalid("--advertise", "%s is no address of one machine; give that of this one", address)
		}
	}
	here := func(endpoint string) bool {
		u, err := url.Parse(endpoint)
		return err == nil && (u.Scheme == "unix" || transport.Loopback(u.Host))
	}
	if transport.Loopback(address) && !allOf(f.Etcd, here) {
		return plimsoll.Invalid("--advertise",
			"%s is reached on this machine alone, and etcd is on others; give the address at which they reach this one", address)
	}
	return nil
}

func allOf(texts []string, is func(string) bool) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !is(text) })
}

var errNobodyLeads = plimsoll.Errorf(plimsoll.CodeUnavailable, "etcd knows no coordinator that leads")

// etcdFinder finds the leader through etcd. It connects at the first Find, and stays connected
// until Close.
type etcdFinder struct {
	config etcd.Config

	mu      sync.Mutex
	leaders *etcd.Leaders // nil: not connected
}

// Find implements replica.Finder.
func (f *etcdFinder) Find(ctx context.Context) ([]string, error) {
	leaders, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	leader, err := leaders.Leader(ctx)
	if err != nil {
		return nil, err
	}
	if leader.Term == 0 {
		return nil, errNobodyLeads
	}
	return []string{leader.Address}, nil
}

func (f *etcdFinder) connect(ctx context.Context) (*etcd.Leaders, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaders == nil {
		leaders, err := etcd.FindLeaders(ctx, f.config)
		if err != nil {
			return nil, err
		}
		f.leaders = leaders
	}
	return f.leaders, nil
}

// Close ends the connections. Nothing is found meanwhile.
func (f *etcdFinder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaders == nil {
		return nil
	}
	leaders := f.leaders
	f.leaders = nil
	return leaders.Close()
}
