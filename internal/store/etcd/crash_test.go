package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// death is how a process dies at a call to etcd.
type death int

const (
	beforeSending death = iota // etcd does not get the call
	beforeAnswer               // etcd gets it, and the process does not learn of that
	whileUnderWay              // etcd gets it when another process leads
	numDeaths
)

func (d death) String() string {
	return []string{"before it is sent", "before its answer", "while it is under way"}[d]
}

// errDead is an error after which etcd's client does not try again.
var errDead = status.Error(codes.Unknown, "the process is dead")

// call is one call to etcd.
type call struct {
	method         string
	request, reply any
}

// process stands between a store and etcd. It dies at one call, and makes none afterwards.
type process struct {
	at    int // the call at which it dies, from 1; 0: it lives on
	how   death
	flaky bool // each third transaction fails before: its request or its answer is lost

	dead context.Context //nolint:containedctx // it stands for the life of the process
	end  context.CancelFunc

	mu          sync.Mutex
	calls, txns int
	ended       bool // it makes no more calls
	last        call // the one at which it died
}

func newProcess(at int, how death, flaky bool) *process {
	p := &process{at: at, how: how, flaky: flaky}
	p.dead, p.end = context.WithCancel(context.Background())
	return p
}

// next counts a call. It tells whether etcd gets it, whether its answer is lost, and whether the
// process dies of it.
func (p *process) next(c call) (sent, lost, dies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false, true, false
	}
	p.calls++
	if p.calls == p.at {
		p.ended, p.last = true, c
		return p.how == beforeAnswer, true, true
	}
	if !p.flaky || !strings.HasSuffix(c.method, "/Txn") {
		return true, false, false
	}
	p.txns++
	return p.txns%6 != 3, p.txns%3 == 0, false
}

// adjust puts the process before the calls of a client.
func (p *process) adjust(settings *clientv3.Config) {
	settings.DialOptions = append(settings.DialOptions,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
		) (err error) {
			sent, lost, dies := p.next(call{method, request, reply})
			if sent {
				err = invoke(ctx, method, request, reply, conn, options...)
			}
			if dies {
				p.end()
			}
			if lost {
				return errDead
			}
			return err
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, what *grpc.StreamDesc, conn *grpc.ClientConn,
			method string, begin grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			if p.dead.Err() != nil {
				return nil, errDead
			}
			return begin(ctx, what, conn, method, options...)
		}))
}

// run runs the workload in the process until it dies. Then its store ends at once, as with the
// process.
func (p *process) run(cfg Config, promises *storetest.Promises, seed uint64) error {
	cfg.adjust = p.adjust
	opened, ended := make(chan *Store, 1), make(chan struct{})
	var buried sync.WaitGroup
	buried.Go(func() {
		select {
		case <-p.dead.Done():
		case <-ended:
			return
		}
		s := <-opened
		for s != nil {
			if t := s.term(); t != nil { // Lead may be about to gain it
				t.place.lease.lose()
			}
			select {
			case <-time.After(time.Millisecond):
			case <-ended:
				return
			}
		}
	})
	err := promises.Run(p.dead, func() (store.Store, error) {
		s, err := Open(p.dead, cfg)
		opened <- s
		if err != nil {
			return nil, err
		}
		return s, nil
	}, rand.New(rand.NewPCG(seed, 0)), storetest.Workload{Batches: 12, LeadEach: 7, Large: 1300 << 10})
	close(ended)
	buried.Wait()
	return err
}

// crashTest has a cluster for many crashes.
type crashTest struct {
	*testing.T

	cluster *etcdtest.Cluster
	admin   *clientv3.Client
	seed    uint64
}

// crash lets a process die, and looks whether the promises hold. It returns the number of calls
// that the process made.
func (t *crashTest) crash(at int, how death, flaky bool) (calls int, err error) {
	cfg := config(t.cluster)
	cfg.TTL = 30 * time.Second
	p, promises := newProcess(at, how, flaky), storetest.NewPromises()
	defer p.end()
	if err := p.run(cfg, promises, t.seed); err != nil && p.dead.Err() == nil {
		return 0, fmt.Errorf("the workload failed although the process lives: %w", err)
	}
	given := promises.After(promises.Before())
	if err := t.revokeLeases(cfg.Prefix); err != nil {
		return 0, err
	}
	if err := t.afterCrash(cfg, promises, given, p); err != nil {
		return 0, fmt.Errorf("the process died at call %d, %s, %v, flaky %v: %w", at, p.last.method, how, flaky, err)
	}
	return p.calls, t.forget(cfg.Prefix)
}

// afterCrash looks at the store in another process, and lets the call come late with which the
// first one died.
func (t *crashTest) afterCrash(
	cfg Config, promises *storetest.Promises, given storetest.Given, p *process,
) (err error) {
	ctx := t.Context()
	s, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := promises.Check(ctx, s, given); err != nil {
		return err
	}
	if err := t.noOrphans(s); err != nil {
		return err
	}
	if p.how != whileUnderWay || p.last.method == "" {
		return nil
	}
	before, err := storetest.Read(s)
	if err != nil {
		return err
	}
	_ = t.admin.ActiveConnection().Invoke(ctx, p.last.method, p.last.request, p.last.reply) // it may be refused
	after, err := storetest.Read(s)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		return fmt.Errorf("the late call has changed something (-before +after):\n%s", diff)
	}
	if err := s.Confirm(ctx); err != nil {
		return fmt.Errorf("after the late call: %w", err)
	}
	return t.noOrphans(s)
}

// noOrphans returns an error if etcd has parts that no value refers to.
func (t *crashTest) noOrphans(s *Store) error {
	live := s.term().parts.live
	_, err := s.scanKeys(t.Context(), partPrefix, func(key string) error {
		owner, id, err := decodePartKey(key)
		if err == nil && live[owner] != id {
			err = fmt.Errorf("nothing refers to a part %v of %q", id, owner)
		}
		return err
	})
	return err
}

// revokeLeases ends all leases of a store, as if they had run out.
func (t *crashTest) revokeLeases(prefix string) error {
	line, err := t.admin.Get(t.Context(), prefix+leadersPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range line.Kvs {
		if _, err := t.admin.Revoke(t.Context(), clientv3.LeaseID(kv.Lease)); err != nil {
			return err
		}
	}
	return nil
}

// forget removes a store, so that the database of etcd does not grow.
func (t *crashTest) forget(prefix string) error {
	gone, err := t.admin.Delete(t.Context(), prefix, clientv3.WithPrefix())
	if err == nil {
		_, err = t.admin.Compact(t.Context(), gone.Header.Revision)
	}
	return err
}

// The process dies at any of its calls to etcd. Another process finds all that was acknowledged,
// and nothing in part. A call that comes late, behind the next leader, changes nothing.
func TestCrashAtEveryCall(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	seed := testrun.Seed(t)
	for n := range uint64(testrun.Count(1, 1, 8)) {
		c := &crashTest{t, cluster, cluster.Client(t), seed + n}
		c.crashes(testrun.Count(10, 50, math.MaxInt))
	}
}

// crashes makes so many crashes of one workload, or all that are possible.
func (t *crashTest) crashes(most int) {
	t.Helper()
	type crash struct {
		at    int
		how   death
		flaky bool
	}
	var all []crash
	for _, flaky := range []bool{false, true} {
		calls, err := t.crash(0, 0, flaky)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d calls, flaky %v", calls, flaky)
		for at := 1; at <= calls; at++ {
			for how := range numDeaths {
				all = append(all, crash{at, how, flaky})
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("there are only %d crashes", len(all))
	}
	rng := rand.New(rand.NewPCG(t.seed, 1))
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, one := range all[:min(len(all), most)] {
		if _, err := t.crash(one.at, one.how, one.flaky); err != nil {
			t.Fatal(err)
		}
	}
}
