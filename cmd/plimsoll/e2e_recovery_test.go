package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
)

// linked is a coordinator and a gateway with a link between them, and a client that tries once.
type linked struct {
	*roles
	leader string
	link   *faultnet.Link
	reader *client.Client
}

// newLink carries connections from one address to another until the test ends.
func newLink(t testing.TB, at, to string) *faultnet.Link {
	t.Helper()
	link, err := faultnet.Listen(t.Context(), at, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	return link
}

// newLinked starts the processes. Without a link the gateway itself sees that nothing listens.
func newLinked(t testing.TB, withLink bool) *linked {
	t.Helper()
	ports := freePorts(t, 2)
	l := &linked{roles: &roles{site: newSite(t)}, leader: ports[0]}
	l.startLeader()
	l.coordinator.says("msg=leading")
	at := l.leader
	if withLink {
		at = ports[1]
		l.link = newLink(t, at, l.leader)
	}
	l.gateway = start(t, "gateway", "--id", "g1", "--leader", at, "--listen", l.address,
		"--archive", l.path("archive", "jobs.db"),
		"--gateway-token-file", l.path("store", "gateway.token"))
	l.gateway.says("following the leader")
	reader, err := client.New(client.Config{Server: l.address, RetryBudget: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	l.reader = reader
	l.answered()
	return l
}

func (l *linked) startLeader() {
	l.coordinator = start(l.t, "coordinator", "--data", l.path("store"), "--listen", l.leader)
}

// read makes one strict read. The answer that there is no such job counts as an answer.
func (l *linked) read(ctx context.Context) error {
	_, err := l.reader.Job(ctx, "none")
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return nil
	}
	return err
}

// answered waits until a strict read is answered, and returns how long that took. Five milliseconds
// after a failure it reads again.
func (l *linked) answered() time.Duration {
	l.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	for {
		err := l.read(ctx)
		if err == nil {
			return time.Since(began)
		}
		pause(ctx, 5*time.Millisecond)
		if ctx.Err() != nil {
			l.t.Fatalf("no strict read was answered: %v", err)
		}
	}
}

// refused waits until strict reads are refused at once, and returns how long that took.
func (l *linked) refused() time.Duration {
	l.t.Helper()
	began := time.Now()
	for {
		asked := time.Now()
		if err := l.read(l.t.Context()); err != nil && strings.Contains(err.Error(), "not connected") {
			return asked.Sub(began)
		}
		pause(l.t.Context(), 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (l *linked) signal(s os.Signal) {
	l.t.Helper()
	if err := l.coordinator.cmd.Process.Signal(s); err != nil {
		l.t.Fatal(err)
	}
}

// restart kills the coordinator, and starts it again after a while.
func (l *linked) restart(after time.Duration) time.Duration {
	l.t.Helper()
	l.coordinator.kill()
	pause(l.t.Context(), after)
	l.startLeader()
	return l.answered()
}

// cut loses all connections and new ones for a while.
func (l *linked) cut(lasts time.Duration) (found, back time.Duration) {
	l.t.Helper()
	l.link.Lose(faultnet.Both, true)
	found = l.refused()
	pause(l.t.Context(), lasts-found)
	l.link.Heal()
	return found, l.answered()
}

// stand suspends the coordinator's process for a while.
func (l *linked) stand(lasts time.Duration) time.Duration {
	l.t.Helper()
	l.signal(syscall.SIGSTOP)
	pause(l.t.Context(), lasts)
	l.signal(syscall.SIGCONT)
	return l.answered()
}

// recoveries are failures in the order of the table in docs/recovery.md. Each returns the time from
// the event at the end of its name until reads are answered.
var recoveries = []struct {
	name   string
	direct bool // without the link
	run    func(l *linked) time.Duration
}{
	{"coordinator killed and started at once: from it", true, func(l *linked) time.Duration {
		return l.restart(0)
	}},
	{"coordinator killed and started 5 s later: from it", true, func(l *linked) time.Duration {
		return l.restart(5 * time.Second)
	}},
	{"link closed: from then", false, func(l *linked) time.Duration {
		l.link.Cut()
		return l.answered()
	}},
	{"link silently lost: from then", false, func(l *linked) time.Duration {
		l.link.Lose(faultnet.Both, false)
		return l.answered()
	}},
	{"all ways silently lost: until reads are refused", false, func(l *linked) time.Duration {
		found, _ := l.cut(0)
		return found
	}},
	{"all ways silently lost for 10 s: from their return", false, func(l *linked) time.Duration {
		_, back := l.cut(10 * time.Second)
		return back
	}},
	{"coordinator stopped for 2 s: from its going on", false, func(l *linked) time.Duration {
		return l.stand(2 * time.Second)
	}},
	{"coordinator stopped for 10 s: from its going on", false, func(l *linked) time.Duration {
		return l.stand(10 * time.Second)
	}},
}

// BenchmarkRecovery measures how long strict reads are not answered after a failure of the
// coordinator or of the link to it. It runs real processes and prints the table of
// docs/recovery.md.
func BenchmarkRecovery(b *testing.B) {
	var table strings.Builder
	table.WriteString("| what happens | runs | median | p95 |\n| --- | --- | --- | --- |\n")
	for i, recovery := range recoveries {
		b.Run(fmt.Sprint(i+1), func(b *testing.B) {
			l := newLinked(b, !recovery.direct)
			var took []time.Duration
			for b.Loop() {
				// at any phase of the follower's looks
				pause(b.Context(), time.Duration(100+len(took)*37%900)*time.Millisecond)
				took = append(took, recovery.run(l))
			}
			slices.Sort(took)
			at := func(percent int) float64 { return took[(len(took)*percent+99)/100-1].Seconds() }
			b.ReportMetric(at(50), "p50-s")
			b.ReportMetric(at(95), "p95-s")
			fmt.Fprintf(&table, "| %s | %d | %.3f s | %.3f s |\n", recovery.name, len(took), at(50), at(95))
		})
	}
	_, _ = fmt.Fprint(os.Stdout, "\n"+table.String())
}

// TestALostLinkIsReplacedByRealProcesses: a gateway loses its link silently. It answers strict
// reads again long before the pings of HTTP/2 would have ended the connection. The same holds after
// the coordinator was killed and started again.
func TestALostLinkIsReplacedByRealProcesses(t *testing.T) {
	t.Parallel()
	l := newLinked(t, true)
	l.link.Lose(faultnet.Both, false)
	if took := l.answered(); took > 10*time.Second { // the machine is shared with other tests
		t.Errorf("after a link was lost no read was answered for %s", took)
	}
	l.gateway.says("no leader.*answers on a new connection")
	if took := l.restart(0); took > 10*time.Second {
		t.Errorf("after the coordinator's restart no read was answered for %s", took)
	}
	l.gateway.says("epoch=2")
}
