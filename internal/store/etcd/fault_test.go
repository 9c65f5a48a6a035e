package etcd

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/store/etcd/etcdtest"
	"github.com/plimsoll-dev/plimsoll/internal/store/storetest"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

func leadStore(t testing.TB, s *Store) uint64 {
	t.Helper()
	epoch, err := s.Lead(context.Background(), nil)
	if err != nil {
		t.Fatalf("lead: %v", err)
	}
	return epoch
}

func batchOf(epoch, revision uint64, key, value string) *wire.Batch {
	return &wire.Batch{
		Epoch: epoch, Revision: revision, Time: int64(revision),
		Mutations: []wire.Mutation{{Kind: wire.KindNode, Key: key, Value: []byte(value)}},
	}
}

// commitAll commits a batch and waits for it.
func commitAll(s *Store, b *wire.Batch) error {
	p, err := s.Commit(b)
	if err != nil {
		return err
	}
	return p.Wait()
}

func mustCommit(t testing.TB, s *Store, b *wire.Batch) {
	t.Helper()
	if err := commitAll(s, b); err != nil {
		t.Fatalf("commit revision %d: %v", b.Revision, err)
	}
}

// values returns the stored values of nodes by key.
func values(t testing.TB, s store.Store) map[string]string {
	t.Helper()
	c, err := storetest.Read(s)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	all := map[string]string{}
	for _, r := range c.Records {
		all[r.Key] = r.Value
	}
	return all
}

// linked returns a configuration whose connections go through a link.
func linked(t testing.TB, c *etcdtest.Cluster) (Config, *faultnet.Link) {
	t.Helper()
	cfg := config(c)
	at := freeAddress(t)
	link, err := faultnet.Listen(context.Background(), at, c.Members[0].Endpoint[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	cfg.Endpoints = []string{"http://" + at}
	return cfg, link
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // its address is what is wanted
	return l.Addr().String()
}

func codeIs(t *testing.T, what string, err error, codes ...plimsoll.Code) {
	t.Helper()
	for _, c := range codes {
		if err != nil && plimsoll.CodeOf(err) == c {
			return
		}
	}
	t.Errorf("%s: got %v, want an error of a code of %v", what, err, codes)
}

// closed waits until a channel is closed, for as long as the test may run.
func closed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s: it does not happen", what)
	}
}

// A transaction whose answer is lost is stored once, and the leader goes on if the connection comes
// back before its lease ends.
func TestATransactionWithoutAnAnswerIsSettled(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	for _, lost := range []struct {
		name string
		cut  func(*faultnet.Link)
	}{
		{"its answer is lost", func(l *faultnet.Link) { l.Lose(faultnet.Down, false) }},
		{"it is lost itself", func(l *faultnet.Link) { l.Lose(faultnet.Up, false) }},
		{"its connection is cut", func(l *faultnet.Link) { l.Delay(20 * time.Millisecond) }},
	} {
		t.Run(lost.name, func(t *testing.T) {
			cfg, link := linked(t, cluster)
			cfg.TTL = 10 * time.Second
			s := openStore(t, cfg)
			epoch := leadStore(t, s)
			mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
			lost.cut(link)
			p, err := s.Commit(batchOf(epoch, 2, "a", "2"))
			if err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(30*time.Millisecond, func() { link.Cut(); link.Heal() })
			defer timer.Stop()
			if err := p.Wait(); err != nil {
				t.Fatalf("the transaction was not settled: %v", err)
			}
			mustCommit(t, s, batchOf(epoch, 3, "b", "3"))
			if got := values(t, s); got["a"] != "2" || got["b"] != "3" {
				t.Errorf("stored is %v", got)
			}
		})
	}
}

// If nothing can be learned about a transaction before the lease ends, its outcome is unknown, the
// leadership has ended, and nothing more is written.
func TestAnOutcomeThatStaysUnknownEndsTheTerm(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg, link := linked(t, cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
	link.Lose(faultnet.Down, true)
	err := commitAll(s, batchOf(epoch, 2, "a", "2"))
	codeIs(t, "the batch", err, plimsoll.CodeOutcomeUnknown)
	closed(t, "the end of the leadership", s.Deposed())
	err = commitAll(s, batchOf(epoch, 3, "a", "3"))
	codeIs(t, "a later batch", err, plimsoll.CodeStale, plimsoll.CodeOutcomeUnknown)
	codeIs(t, "confirm", s.Confirm(context.Background()), plimsoll.CodeStale)
	other := cfg
	other.Endpoints = cluster.Endpoints()
	next := openStore(t, other)
	if got := leadStore(t, next); got <= epoch {
		t.Errorf("epoch %d came after %d", got, epoch)
	}
	if got := values(t, next)["a"]; got != "1" && got != "2" {
		t.Errorf("stored is %q", got)
	}
}

// A leader whose etcd is paused for longer than the lease confirms nothing meanwhile, and does not
// lead afterwards.
func TestAPausedEtcdEndsTheLeadership(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	member := cluster.Members[0]
	began := boottime()
	member.Pause()
	closed(t, "the end of the leadership", s.Deposed())
	if held := boottime() - began; held > cfg.withDefaults().TTL {
		t.Errorf("the leadership ended %v after the pause began, after the time that etcd grants", held)
	}
	codeIs(t, "confirm", s.Confirm(context.Background()), plimsoll.CodeStale)
	member.Resume()
	codeIs(t, "a batch", commitAll(s, batchOf(epoch, 1, "a", "1")), plimsoll.CodeStale)
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	next := openStore(t, cfg)
	mustCommit(t, next, batchOf(leadStore(t, next), 1, "a", "next"))
}

// A process that was paused for longer than its lease does not write, whatever it believes: this
// one never looks at its clock.
func TestAPausedLeaderIsFenced(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
	term := s.term()
	term.place.lease.end() // no keep-alive is sent any more
	term.place.lease.until.Store(int64(boottime() + time.Hour))
	rival := openStore(t, cfg)
	after := leadStore(t, rival)
	mustCommit(t, rival, batchOf(after, 2, "a", "rival"))
	r := newRequest(term.meta, []*item{{batch: batchOf(epoch, 2, "a", "old")}})
	err := s.apply(context.Background(), term, r, s.operations(term, r, ""))
	codeIs(t, "the old leader's transaction", err, plimsoll.CodeStale)
	// Not even with the store's own record as it is now.
	term.meta = rival.term().meta
	r = newRequest(term.meta, []*item{{batch: batchOf(epoch, 3, "a", "old")}})
	err = s.apply(context.Background(), term, r, s.operations(term, r, ""))
	codeIs(t, "the old leader's transaction with the present record", err, plimsoll.CodeStale)
	if got := values(t, rival)["a"]; got != "rival" {
		t.Errorf("stored is %q", got)
	}
}

// A transaction that etcd gets late, after a later one was applied, changes nothing.
func TestALateTransactionIsRefused(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	s := openStore(t, config(cluster))
	epoch := leadStore(t, s)
	mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
	term := s.term()
	late := *newRequest(term.meta, []*item{{batch: batchOf(epoch, 2, "a", "late")}})
	before := term.meta
	mustCommit(t, s, batchOf(epoch, 2, "a", "2"))
	after := late.after
	after.commits = before.commits
	found, err := s.exchange(context.Background(), term, before,
		append(s.operations(term, &late, ""), clientv3.OpPut(s.key(metaKey), after.next().encode())))
	if err != nil || found == nil || !found.holds {
		t.Fatalf("the late transaction was applied, or failed: %+v, %v", found, err)
	}
	if got := values(t, s)["a"]; got != "2" {
		t.Errorf("stored is %q", got)
	}
}

// The barrier tells whether a transaction was applied, and keeps it from being applied later.
func TestTheBarrierDecides(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	ctx := context.Background()
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("the transaction is first: %v", first), func(t *testing.T) {
			s := openStore(t, config(cluster))
			epoch := leadStore(t, s)
			mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
			term := s.term()
			before := term.meta
			r := newRequest(before, []*item{{batch: batchOf(epoch, 2, "a", "2")}})
			after := r.after
			after.commits = before.commits
			after = after.next()
			send := func() (*finding, error) {
				return s.exchange(ctx, term, before,
					append(s.operations(term, r, ""), clientv3.OpPut(s.key(metaKey), after.encode())))
			}
			if first {
				if found, err := send(); found != nil || err != nil {
					t.Fatalf("%+v, %v", found, err)
				}
			}
			for range 2 { // the barrier's answer may be lost too
				applied, err := s.settle(ctx, term, before, after, r)
				if err != nil || applied != first {
					t.Fatalf("settle says applied: %v, %v", applied, err)
				}
			}
			if !first {
				if found, err := send(); err != nil || found == nil {
					t.Fatalf("the transaction was applied after the barrier: %+v, %v", found, err)
				}
				if err := s.apply(ctx, term, r, s.operations(term, r, "")); err != nil {
					t.Fatalf("sent anew after the barrier: %v", err)
				}
			}
			if got := values(t, s)["a"]; got != "2" {
				t.Errorf("stored is %q", got)
			}
		})
	}
}

// The leader of three members is killed again and again while batches are committed. All that was
// acknowledged is there, in order, and the leadership goes on.
func TestAMemberIsKilledDuringCommits(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cfg := config(cluster)
	cfg.TTL = 10 * time.Second // etcd's own election takes up to 3 s
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	var m storetest.Model
	revision := uint64(0)
	for round := range testrun.Count(1, 2, 10) {
		victim := cluster.Leader(t)
		for n := range 200 {
			if n == 50 {
				victim.Kill()
			}
			revision++
			b := batchOf(epoch, revision, fmt.Sprint(n%17), fmt.Sprintf("%d/%d", round, n))
			mustCommit(t, s, b)
			m.Apply(b)
		}
		victim.Start()
		victim.Await()
	}
	got, err := storetest.Read(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := m.Content(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored is %v, want %v", got, want)
	}
}

// A member is killed while it writes to its log, and the write is left in part. etcd repairs the
// log, and gets the rest from the others. The store has all that was acknowledged, at each member.
func TestATornLogOfAMemberIsRepaired(t *testing.T) {
	cluster := etcdtest.StartOnDisks(t, 3)
	cfg := config(cluster)
	cfg.TTL = 10 * time.Second // etcd's own election takes up to 3 s
	leader := cluster.Leader(t)
	cfg.Endpoints = []string{leader.Endpoint} // so that no call waits for the others' disks
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	var m storetest.Model
	revision := uint64(0)
	commit := func(n int) {
		t.Helper()
		for range n {
			revision++
			b := batchOf(epoch, revision, fmt.Sprint(revision%17), strings.Repeat(fmt.Sprint(revision%10), 1500))
			mustCommit(t, s, b)
			m.Apply(b)
		}
	}
	for round := range testrun.Count(2, 4, 20) {
		commit(30)
		victim := cluster.Members[round%3]
		if victim == leader {
			victim = cluster.Members[(round+1)%3]
		}
		if err := victim.StallDisk(); err != nil {
			t.Skipf("disks cannot be stalled here: %v", err)
		}
		durable := victim.LogBytes() // at most
		commit(30)
		for victim.LogBytes() < durable+1500 && t.Context().Err() == nil {
			pause(t.Context(), time.Millisecond)
		}
		victim.Kill()
		victim.FreeDisk()
		victim.TearLog(durable, etcdtest.Tear(round)%etcdtest.NumTears)
		victim.Start()
		victim.Await()
	}
	commit(30)
	for _, member := range cluster.Members {
		one := cfg
		one.Endpoints = []string{member.Endpoint}
		got, err := storetest.Read(openStore(t, one))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.Content(), got); diff != "" {
			t.Errorf("the member at %s holds something else (-want +got):\n%.2000s", member.Endpoint, diff)
		}
	}
}

// One paused member of three delays, and neither ends the leadership nor loses a batch.
func TestOnePausedMemberOfThreeEndsNothing(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cfg := config(cluster)
	cfg.TTL = 4 * time.Second
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	leader := cluster.Leader(t)
	for _, m := range cluster.Members {
		if m != leader {
			m.Pause()
			defer m.Resume()
			break
		}
	}
	for revision := uint64(1); revision <= 20; revision++ {
		mustCommit(t, s, batchOf(epoch, revision, "a", fmt.Sprint(revision)))
	}
	if err := s.Confirm(context.Background()); err != nil {
		t.Error(err)
	}
}

// Without a majority nothing is acknowledged and nothing is confirmed after the lease. When the
// majority is back, this process leads again.
func TestALostMajorityEndsTheLeadershipUntilItIsBack(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	cfg := config(cluster)
	s := openStore(t, cfg)
	epoch := leadStore(t, s)
	mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
	cluster.Members[0].Kill()
	cluster.Members[1].Kill()
	p, err := s.Commit(batchOf(epoch, 2, "a", "2"))
	if err != nil {
		t.Fatal(err)
	}
	codeIs(t, "a batch without a majority", p.Wait(), plimsoll.CodeOutcomeUnknown)
	closed(t, "the end of the leadership", s.Deposed())
	codeIs(t, "confirm", s.Confirm(context.Background()), plimsoll.CodeStale)
	if _, err := storetest.Read(s); err == nil {
		t.Error("a load succeeds without a majority")
	}
	cluster.Members[0].Start()
	cluster.Members[0].Await()
	var after uint64
	for after == 0 {
		after, err = s.Lead(context.Background(), nil)
		if err != nil && plimsoll.CodeOf(err) != plimsoll.CodeUnavailable {
			t.Fatal(err)
		}
	}
	if after <= epoch {
		t.Errorf("epoch %d came after %d", after, epoch)
	}
	mustCommit(t, s, batchOf(after, 3, "a", "3"))
	if got := values(t, s)["a"]; got != "3" {
		t.Errorf("stored is %q", got)
	}
}

// An etcd whose database is full refuses batches, and the error says how to get space. When there
// is space, the same process goes on.
func TestAFullEtcdIsToldUntilThereIsSpace(t *testing.T) {
	cluster := etcdtest.Start(t, 1, "--quota-backend-bytes", fmt.Sprint(16<<20))
	s := openStore(t, config(cluster))
	epoch := leadStore(t, s)
	full := func(what string, err error) {
		t.Helper()
		codeIs(t, what, err, plimsoll.CodeUnavailable, plimsoll.CodeOutcomeUnknown)
		if err == nil || !strings.Contains(err.Error(), "disarm the alarm") {
			t.Errorf("%s: got %v, which does not say what to do", what, err)
		}
	}
	large, acked := strings.Repeat("x", 1<<20), uint64(0)
	var err error
	for acked < 100 {
		if err = commitAll(s, batchOf(epoch, acked+1, "a", fmt.Sprint(acked+1, large))); err != nil {
			break
		}
		acked++
	}
	full("a batch", err)
	full("the next batch", commitAll(s, batchOf(epoch, acked+2, "a", "small")))
	_, err = s.Lead(t.Context(), nil)
	full("lead", err)
	if got := values(t, s)["a"]; got != fmt.Sprint(acked, large) && got != fmt.Sprint(acked+1, large) {
		t.Errorf("stored is %.20q, and revision %d was acknowledged", got, acked)
	}

	ctx, admin := t.Context(), cluster.Client(t)
	now, err := admin.Get(ctx, "any")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Defragment(ctx, cluster.Members[0].Endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	epoch = leadStore(t, s)
	next := s.term().meta.revision + 1
	mustCommit(t, s, batchOf(epoch, next, "a", "small"))
	mustCommit(t, s, batchOf(epoch, next+1, "b", large))
	if got := values(t, s); got["a"] != "small" || got["b"] != large {
		t.Errorf("stored is %.100v", got)
	}
}

// Confirm looks at the clock itself: a process that was paused has not yet noticed that its lease
// has run out.
func TestConfirmLooksAtTheClock(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	cfg.TTL = time.Minute // so that nothing else ends it meanwhile
	s := openStore(t, cfg)
	leadStore(t, s)
	l := s.term().place.lease
	l.end() // nothing renews it, but for a keep-alive under way
	err := s.Confirm(context.Background())
	for tries := 0; err == nil && tries < 1000; tries++ {
		l.until.Store(int64(boottime()))
		err = s.Confirm(context.Background())
	}
	codeIs(t, "confirm", err, plimsoll.CodeStale)
	closed(t, "the end of the leadership", s.Deposed())
}

// The time of a lease counts from the sending of a keep-alive and not from its answer.
func TestAKeepAliveCountsFromItsSending(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg, link := linked(t, cluster)
	cfg.TTL = 10 * time.Second
	s := openStore(t, cfg)
	leadStore(t, s)
	const delay = time.Second
	link.Delay(delay) // each way
	l := s.term().place.lease
	first := l.until.Load()
	for renewals := 0; renewals < 2; {
		until := l.until.Load()
		if until == first {
			pause(t.Context(), time.Millisecond)
			continue
		}
		if left := time.Duration(until) - boottime(); left > cfg.TTL-cfg.TTL/driftShare-2*delay+delay/2 {
			t.Fatalf("%v are left although the answer took %v", left, 2*delay)
		}
		renewals++
		first = until
	}
}

// The leader lets etcd forget what was replaced for a while, and not what was replaced since.
func TestTheLeaderCompactsOldRevisions(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	s := openStore(t, config(cluster))
	epoch := leadStore(t, s)
	var seen []int64 // by etcd, at each call
	for revision := uint64(1); revision <= 3; revision++ {
		mustCommit(t, s, batchOf(epoch, revision, "a", fmt.Sprint(revision)))
		now, err := s.readMeta(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, now.revision)
		if err := s.term().compactOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, forgotten := range []bool{true, false, false} {
		_, err := s.client.Get(t.Context(), s.key(metaKey), clientv3.WithRev(seen[i]))
		if isCompacted(err) != forgotten || !forgotten && err != nil {
			t.Errorf("revision %d of %v: %v", seen[i], seen, err)
		}
	}
	if got := values(t, s)["a"]; got != "3" {
		t.Errorf("stored is %q", got)
	}
}

// A process that waits to lead keeps its place while etcd does not answer for less than the lease.
func TestAShortSilenceOfEtcdDoesNotEndTheWaiting(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	cfg := config(cluster)
	cfg.TTL = 10 * time.Second
	s, next := openStore(t, cfg), openStore(t, cfg)
	epoch := leadStore(t, s)
	waits, led := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := next.Lead(context.Background(), func(string) { close(waits) })
		led <- err
	}()
	<-waits
	cluster.Members[0].Kill()
	cluster.Members[0].Start()
	mustCommit(t, s, batchOf(epoch, 1, "a", "1"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-led; err != nil {
		t.Error(err)
	}
}
