package etcd

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
)

const userPassword = "not a secret"

// withUsers gives a cluster the user root and another one, whose role has what docs/cluster.md says
// is needed below a prefix. It returns a client of root.
func withUsers(t *testing.T, c *etcdtest.Cluster, user, prefix string) *clientv3.Client {
	t.Helper()
	admin, ctx := c.Client(t), t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.UserAdd(ctx, "root", userPassword))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.RoleAdd(ctx, "coordinator"))
	must(admin.RoleGrantPermission(ctx, "coordinator", prefix, clientv3.GetPrefixRangeEnd(prefix),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(admin.UserAdd(ctx, user, userPassword))
	must(admin.UserGrantRole(ctx, user, "coordinator"))
	must(admin.AuthEnable(ctx))
	return c.ClientOf(t, "root", userPassword)
}

// leadsAndWrites opens a store, leads, writes and loads values of all sizes, and finds the leader.
func leadsAndWrites(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Advertise = "here"
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	large := strings.Repeat("l", 2<<20)
	last := s.term().meta.revision
	mustCommit(t, s, batchOf(epoch, last+1, "small", "1"))
	mustCommit(t, s, batchOf(epoch, last+2, "large", large))
	if got := values(t, s); got["small"] != "1" || got["large"] != large {
		t.Errorf("stored is %.100v", got)
	}
	mustCommit(t, s, batchOf(epoch, last+3, "large", "no longer")) // removes the parts
	leaders, err := FindLeaders(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := leaders.Leader(t.Context()); err != nil || l.Address != "here" {
		t.Errorf("the leader is said to be %+v, %v", l, err)
	}
	if err := leaders.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// awaitMajority waits until a read is answered that needs a leader of etcd.
func awaitMajority(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		call, end := context.WithTimeout(ctx, 2*time.Second)
		_, err := client.Get(call, key)
		end()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// A user with a password needs no more than docs/cluster.md says, also while a member of etcd does
// not run. That member is asked again when it runs.
func TestAUserWithAPasswordNeedsNotAllMembers(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 3)
	cfg := config(cluster)
	cfg.CAFile, cfg.Username, cfg.Password = cluster.Files.CA, "alice", userPassword
	root := withUsers(t, cluster, cfg.Username, cfg.Prefix)
	dead := cluster.Members[0]
	dead.Kill()
	awaitMajority(t, root, cfg.Prefix) // the member may have led etcd
	leadsAndWrites(t, cfg)
	s := openStore(t, cfg)
	if answer := s.client.Endpoints(); len(answer) != 2 {
		t.Errorf("while a member does not run, the others are %v", answer)
	}
	dead.Start()
	for len(s.client.Endpoints()) != 3 && t.Context().Err() == nil {
		pause(t.Context(), probePause)
	}
	outside := cfg
	outside.Prefix = "/elsewhere/"
	s = openStore(t, outside)
	if _, err := s.Lead(t.Context(), nil); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
		t.Errorf("outside of its prefix: %v", err)
	}
	if got, err := root.Get(t.Context(), outside.Prefix, clientv3.WithPrefix()); err != nil || len(got.Kvs) > 0 {
		t.Errorf("outside of its prefix are %v, %v", got, err)
	}
}

// etcd lets only the role root compact its history. For another user that is told each time, and
// the store goes on.
func TestACompactionThatIsRefusedIsTold(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 1)
	cfg := config(cluster)
	cfg.CAFile, cfg.Username, cfg.Password = cluster.Files.CA, "alice", userPassword
	withUsers(t, cluster, cfg.Username, cfg.Prefix)
	failed := 0
	cfg.CompactionFailed = func(err error) {
		failed++
		if !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("the reason is said to be %v", err)
		}
	}
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	for revision := uint64(1); revision <= 3; revision++ {
		mustCommit(t, s, batchOf(epoch, revision, "a", "1"))
		s.term().compactNow(t.Context())
	}
	if failed != 2 { // the first time there is nothing to forget
		t.Errorf("%d failures were told, want 2", failed)
	}
}

// A wrong password is told at once. It is not shown to each member.
func TestAWrongPasswordIsRefused(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 1)
	cfg := config(cluster)
	cfg.CAFile, cfg.Username, cfg.Password = cluster.Files.CA, "alice", userPassword
	withUsers(t, cluster, cfg.Username, cfg.Prefix)
	cfg.Password = "another one"
	shown := interceptShown(&cfg, func(context.Context, int64) {})
	_, err := Open(t.Context(), cfg)
	codeIs(t, "open", err, plimsoll.CodeUnavailable)
	if n := shown.Load(); err == nil || !strings.Contains(err.Error(), "invalid user ID or password") || n != 1 {
		t.Errorf("after %d tries: %v", n, err)
	}
}

// interceptShown calls f before a client of a configuration shows its password, with the number of
// the time, and counts the times.
func interceptShown(cfg *Config, f func(ctx context.Context, number int64)) *atomic.Int64 {
	n := &atomic.Int64{}
	cfg.adjust = func(settings *clientv3.Config) {
		settings.DialOptions = append(settings.DialOptions, grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
			options ...grpc.CallOption,
		) error {
			if strings.HasSuffix(method, "/Authenticate") {
				f(ctx, n.Add(1))
			}
			return invoke(ctx, method, request, reply, conn, options...)
		}))
	}
	return n
}

// If the member that is shown the password does not answer, others are asked.
func TestAPasswordIsShownToAnotherMember(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 3)
	cfg := config(cluster)
	cfg.CAFile, cfg.Username, cfg.Password = cluster.Files.CA, "alice", userPassword
	withUsers(t, cluster, cfg.Username, cfg.Prefix)
	interceptShown(&cfg, func(ctx context.Context, number int64) {
		if number <= 3 { // the first one that was asked, and two by name
			<-ctx.Done()
		}
	})
	leadsAndWrites(t, cfg)
}

// A password costs etcd much time and a write. So it is not shown for each keep-alive or question,
// only for each new watch.
func TestAPasswordIsNotShownAllTheTime(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 3)
	cfg := config(cluster)
	cfg.CAFile, cfg.Username, cfg.Password = cluster.Files.CA, "alice", userPassword
	cfg.TTL = 4 * time.Second
	withUsers(t, cluster, cfg.Username, cfg.Prefix)
	shown := interceptShown(&cfg, func(context.Context, int64) {})
	s := openStore(t, cfg)
	leadStore(t, s)
	before := shown.Load()
	l := s.term().place.lease
	for renewals, last := 0, l.until.Load(); renewals < 4; { // and about 8 questions to each member
		if until := l.until.Load(); until != last {
			renewals, last = renewals+1, until
		}
		pause(t.Context(), time.Millisecond)
	}
	if n := shown.Load() - before; n > 3 { // there are two watches at most
		t.Errorf("the password was shown %d times in about 4 s", n)
	}
}

// Connections are by TLS, with certificates of both sides. A user of etcd may be known by the
// certificate alone.
func TestCertificatesAreChecked(t *testing.T) {
	cluster := etcdtest.StartTLS(t, 3, "--client-cert-auth")
	cfg := config(cluster)
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = cluster.Files.CA, cluster.Files.Cert, cluster.Files.Key
	leadsAndWrites(t, cfg)
	cfg.Prefix = "/users/"
	root := withUsers(t, cluster, etcdtest.ClientName, cfg.Prefix)
	cluster.Members[0].Kill()
	awaitMajority(t, root, cfg.Prefix)
	leadsAndWrites(t, cfg)
	for name, change := range map[string]func(*Config){
		"without a certificate":  func(c *Config) { c.CertFile, c.KeyFile = "", "" },
		"without etcd's own one": func(c *Config) { c.CAFile = "" },
	} {
		other := cfg
		change(&other)
		_, err := Open(t.Context(), other)
		codeIs(t, name, err, plimsoll.CodeUnavailable)
	}
}
