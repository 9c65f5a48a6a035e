package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// bubble is a sessionManager in virtual time, with gateways without a network.
type bubble struct {
	*book
	sessions *sessionManager
	gateways map[string]gateway
	dialed   []string
	stop     context.CancelFunc
	ended    chan error
}

// inBubble runs a test in virtual time. The supervisor holds no attempt.
func inBubble(t *testing.T, do func(t *testing.T, b *bubble)) {
	t.Helper()
	testrun.Bubble(t, func(t *testing.T) {
		b := &bubble{book: newBook(t), gateways: map[string]gateway{}, ended: make(chan error, 1)}
		b.hold()
		b.sessions = &sessionManager{
			node: plimsoll.Node{ID: "n1", Incarnation: 7}, gateways: []string{"a"}, every: 3 * time.Second,
			timeout: 15 * time.Second,
			ledger:  b.ledger, out: b.out, events: Events{}.withDefaults(),
			dial: func(address string) (gateway, error) {
				b.dialed = append(b.dialed, address)
				if g := b.gateways[address]; g != nil {
					return g, nil
				}
				return nil, plimsoll.Errorf(plimsoll.CodeUnavailable, "nobody answers at %s", address)
			},
		}
		do(t, b)
		if b.stop != nil {
			b.stop()
			if err := <-b.ended; err != nil {
				t.Errorf("the session ended: %v", err)
			}
		}
	})
}

func (b *bubble) run() {
	ctx, cancel := context.WithCancel(b.Context())
	b.stop = cancel
	go func() { b.ended <- b.sessions.run(ctx); close(b.ended) }()
	synctest.Wait()
}

func after(d time.Duration) {
	timer := time.NewTimer(d) // virtual
	<-timer.C
	synctest.Wait()
}

func TestHeartbeatsComeAsOftenAsTheGatewayWants(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.every = 2 * time.Second
		b.gateways["a"] = local{c}
		b.run()
		after(21 * time.Second)
		if c.beats != 10 || c.registers != 1 {
			t.Errorf("%d heartbeats and %d registrations in 21 s, want 10 and 1", c.beats, c.registers)
		}
		c.look(func() { c.every = 0 }) // the gateway leaves it to the agent
		c.disconnect(nil)
		after(time.Second)
		var before int
		c.look(func() { before = c.beats })
		after(30 * time.Second)
		if got := c.beats - before; got != 10 {
			t.Errorf("%d heartbeats in 30 s, want 10", got)
		}
	})
}

func TestANodeThatTheGatewayForgotRegistersAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.run()
		c.change(func() { c.registered = false })
		after(5 * time.Second)
		if c.registers != 2 || !c.registered || c.watches != 1 {
			t.Errorf("%d registrations over %d streams, want 2 over 1", c.registers, c.watches)
		}
	})
}

// A network that comes up or goes down is reported with the next heartbeat, once.
func TestANetworkThatGoesDownIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		var fails error
		up := true
		b.sessions.networks = func() (map[string]bool, error) { return map[string]bool{"back": up}, fails }
		b.sessions.node.Facts.Networks = map[string]bool{"back": true}
		b.run()
		after(10 * time.Second)
		if c.registers != 1 {
			t.Errorf("%d registrations while nothing changed, want 1", c.registers)
		}
		c.look(func() { up = false })
		after(10 * time.Second)
		if c.registers != 2 || c.node.Facts.Networks["back"] {
			t.Errorf("%d registrations, the last with %v; want 2, with back down", c.registers, c.node.Facts.Networks)
		}
		c.look(func() { up, fails = true, errors.New("no such directory") })
		after(10 * time.Second)
		if c.registers != 2 || c.watches != 1 {
			t.Errorf(
				"%d registrations over %d streams while the networks cannot be read, want 2 over 1", c.registers,
				c.watches,
			)
		}
	})
}

func TestEachFailureTriesTheNextGateway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.sessions.gateways = []string{"x", "y", "a"}
		b.sessions.node.ID = "node-3" // begins at x
		b.gateways["a"] = local{c}
		b.run()
		after(time.Second)
		if want := []string{"x", "y", "a"}; !slices.Equal(b.dialed, want) {
			t.Errorf("dialed %v, want %v", b.dialed, want)
		}
		c.disconnect(nil)
		after(2 * time.Second)
		if want := []string{"x", "y", "a", "x", "y", "a"}; !slices.Equal(b.dialed, want) {
			t.Errorf("dialed %v, want %v", b.dialed, want)
		}
	})
}

func TestNodesBeginAtDifferentGateways(t *testing.T) {
	const nodes = 1200
	for _, format := range []string{"node-%04d", "n%[1]d.rack%[1]d", "n%03[1]d-%03[1]d", "%x"} {
		for gateways := 2; gateways <= 5; gateways++ {
			s := &sessionManager{gateways: make([]string, gateways)}
			begin := make([]int, gateways)
			for i := range nodes {
				s.node.ID = fmt.Sprintf(format, i)
				begin[s.firstTurn()]++
			}
			for i, n := range begin {
				if n < nodes/gateways*3/4 || n > nodes/gateways*5/4 {
					t.Errorf("%d of %d nodes named as %s begin at gateway %d of %d", n, nodes, format, i, gateways)
				}
			}
		}
	}
}

func TestAllGatewaysAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.sessions.gateways = []string{"x", "y"}
		b.run()
		after(10 * time.Minute)
		if n := len(b.dialed); n < 600/5 || n > 2*600/5+10 {
			t.Errorf("dialed %d times in ten minutes; one every 2.5 to 5 s is meant", n)
		}
	})
}

func TestReportsAreRepeatedUntilTheyAreAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		b.run()
		c.change(func() { c.noReports = plimsoll.Errorf(plimsoll.CodeUnavailable, "no leader") })
		b.out.add(finished("j.g.0", 1, 3))
		after(time.Minute)
		if len(b.out.next(10)) != 1 || len(c.reports) != 0 {
			t.Fatalf("%d wait, %d came", len(b.out.next(10)), len(c.reports))
		}
		if c.registers < 3 {
			t.Errorf("%d sessions: after %d failures another gateway is due", c.registers, reportTries)
		}
		c.change(func() { c.noReports = nil })
		after(6 * time.Second)
		if len(b.out.next(10)) != 0 || c.has("j.g.0", 1, plimsoll.TaskFinished) != 1 {
			t.Errorf("%d wait, %d came, want none and one", len(b.out.next(10)), len(c.reports))
		}
		if s := c.requests[0].Sequence; s < 3*reportTries || s != b.sessions.sequence {
			t.Errorf("sequence %d, want one that was raised by each try", s)
		}
	})
}

func TestAReportThatCannotBeTakenDoesNotBlockTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		bad := finished("j.g.1", 1, 1)
		bad.Message = "refuse"
		b.out.add(finished("j.g.0", 1, 1))
		b.out.add(bad)
		b.out.add(finished("j.g.2", 1, 1))
		b.run()
		after(time.Second)
		if len(b.out.next(10)) != 0 || len(c.reports) != 2 {
			t.Errorf("%d wait, %d came, want none and two", len(b.out.next(10)), len(c.reports))
		}
	})
}

func TestManyReportsGoInBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		b.gateways["a"] = local{c}
		for i := range int32(2*reportBatch + 1) {
			b.out.add(running(plimsoll.TaskID("j", "g", i), 1))
		}
		b.run()
		if len(c.requests) != 3 || len(c.reports) != 2*reportBatch+1 {
			t.Errorf("%d reports in %d requests", len(c.reports), len(c.requests))
		}
	})
}

// After a stale error of any call the agent ends, and does not try the next gateway.
func TestStaleEndsTheAgent(t *testing.T) {
	for name, provoke := range map[string]func(*bubble, *cluster){
		"at registration":      func(_ *bubble, c *cluster) { c.disconnect(nil) },
		"at a heartbeat":       func(_ *bubble, c *cluster) { c.watches = 0 },
		"when tasks are told":  func(_ *bubble, c *cluster) { c.change(func() {}) },
		"at a report of tasks": func(b *bubble, _ *cluster) { b.out.add(running("j.g.0", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				c := newCluster()
				b.gateways["a"] = local{c}
				b.run()
				c.mu.Lock()
				c.incarnation = 8
				c.mu.Unlock()
				provoke(b, c)
				after(10 * time.Second)
				select {
				case err := <-b.ended:
					if plimsoll.CodeOf(err) != plimsoll.CodeStale {
						t.Errorf("it ended with %v", err)
					}
				default:
					t.Error("it goes on")
				}
			})
		})
	}
}

func TestFollowingALog(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := newBook(t)
		key := attemptKey{"j.g.0", 1}
		path := filepath.Join(b.attemptDir(key), "stdout")
		b.list(task("j.g.0", 1, plimsoll.TaskBound))
		got := make(chan string, 16)
		ended := make(chan error, 1)
		reader := &tail{
			ledger: b.ledger, task: "j.g.0", follow: true, last: 4,
			streams: []tailed{{name: "stdout"}, {name: "stderr"}},
		}
		defer reader.close()
		go func() {
			ended <- reader.run(
				t.Context(), func(p piece) error { got <- p.stream + ":" + string(p.data); return nil },
			)
		}()
		expect := func(want ...string) {
			t.Helper()
			after(logPoll)
			for _, w := range want {
				if g := <-got; g != w {
					t.Errorf("got %q, want %q", g, w)
				}
			}
			if len(got) != 0 || len(ended) != 0 {
				t.Errorf("there is more: %q, ended %d", <-got, len(ended))
			}
		}
		expect() // it has not begun
		write(t, path, []byte("first "))
		b.hold(live("j.g.0", 1, plimsoll.TaskRunning))
		expect("stdout:rst ")
		appendTo(t, path, "second")
		write(t, filepath.Join(filepath.Dir(path), "stderr"), []byte("oh"))
		expect("stdout:second", "stderr:oh")
		expect()
		b.beginAttempts() // without the supervisor, it may still be writing
		expect()
		appendTo(t, path, "last")
		b.attempts([]executor.Status{live("j.g.0", 1, plimsoll.TaskFinished)}, true)
		after(logPoll)
		if g, err := <-got, <-ended; g != "stdout:last" || err != nil {
			t.Errorf("got %q at the end, error %v", g, err)
		}
	})
}
