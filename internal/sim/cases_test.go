package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
	"github.com/plimsoll-dev/plimsoll/internal/calltest"
	"github.com/plimsoll-dev/plimsoll/internal/faultnet"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// inCluster runs a test in a cluster of which every gateway answers.
func inCluster(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	testrun.Bubble(t, func(t *testing.T) {
		c := newCluster(t, testrun.Seed(t), storeFaults{})
		defer c.end()
		if !c.awaitLeader(0, time.Minute) {
			t.Error("nobody leads")
			return
		}
		c.allAnswer()
		f(t, c)
		if err := c.problem(); err != nil {
			t.Error(err)
		}
	})
}

// allAnswer waits until every gateway answers a strict read.
func (c *cluster) allAnswer() {
	c.t.Helper()
	for _, name := range gatewayNames {
		if err := c.answers(name); err != nil {
			c.t.Error(err)
		}
	}
}

// submit submits a job through a gateway, and returns the state of the answer.
func (c *cluster) submit(gateway, id string, budget time.Duration) (plimsoll.JobStatus, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second+max(0, budget))
	defer cancel()
	job, err := c.user(gateway, budget).SubmitJob(ctx, calltest.Spec(id, "ann", 3))
	return job.Status, err
}

// reads reads a job strictly through a gateway.
func (c *cluster) reads(gateway, id string, budget time.Duration) (found bool, stamp client.Stamp, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*time.Second+max(0, budget))
	defer cancel()
	_, err = c.user(gateway, budget).FindJob(client.WithStamp(ctx, &stamp), client.JobName{ID: id})
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		return false, stamp, nil
	}
	return err == nil, stamp, err
}

// nextLeader waits for another leader than the present one.
func (c *cluster) nextLeader(epoch uint64) {
	c.t.Helper()
	if !c.awaitLeader(epoch, time.Minute) {
		c.t.Fatal("nobody took over")
	}
}

// Case 1: a leader is stopped beyond its lease, and gateways still follow it when it goes on. It
// acknowledges no sync and no write that came meanwhile.
func TestAStoppedLeaderAcknowledgesNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, epoch := c.leading()
		for _, name := range coordinatorNames {
			if name != leader.name { // g1 cannot follow the next one
				c.net.link("g1", addressOf(name)).Refuse()
			}
		}
		leader.stop()
		c.nextLeader(epoch)
		if _, err := c.submit("g2", "new", time.Minute); err != nil {
			t.Fatal(err)
		}
		var asking sync.WaitGroup
		for range 5 { // these reach the old leader when it goes on
			asking.Go(func() {
				if found, stamp, err := c.reads("g1", "new", -1); err == nil && !found {
					t.Errorf("a read at the old leader's gateway is of %+v, and lacks what was acknowledged", stamp)
				}
			})
			asking.Go(func() {
				if _, err := c.submit("g1", "old", -1); err == nil {
					t.Error("the stopped leader acknowledged a write")
				}
			})
		}
		sleep(t.Context(), 100*time.Millisecond)
		leader.goOn()
		asking.Wait()
		c.net.heal()
		for _, name := range gatewayNames {
			if found, _, err := c.reads(name, "new", time.Minute); !found || err != nil {
				t.Errorf("%s: the acknowledged job is gone: %v", name, err)
			}
		}
	})
}

// Case 2: two processes believe that they lead, and both write. A request of the old leader that
// arrives after the new one has begun to write is refused.
func TestADeposedLeaderStoresNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, epoch := c.leading()
		if _, err := c.submit("g1", "before", time.Minute); err != nil {
			t.Fatal(err)
		}
		goOn := c.quorum.stalls() // the old leader's request waits there
		var writing sync.WaitGroup
		writing.Go(func() {
			if _, err := c.submit("g1", "late", -1); err == nil {
				t.Error("a write that was not stored was acknowledged")
			}
		})
		sleep(t.Context(), 10*time.Millisecond)
		leader.link.set(func() { leader.link.mu.up, leader.link.mu.down = true, true })
		c.nextLeader(epoch)
		leader.link.heal()
		goOn()
		writing.Wait()
		c.allAnswer()
		for _, name := range gatewayNames {
			if found, _, err := c.reads(name, "late", time.Minute); found || err != nil {
				t.Errorf("%s: found: %v, %v", name, found, err)
			}
		}
		if got := c.quorum.read().meta.epoch; got <= epoch {
			t.Errorf("the store is of epoch %d after %d", got, epoch)
		}
	})
}

// Case 3: a gateway loses its leader while clients still reach it. Whether requests,
// acknowledgements or both are lost, a read fails in bounded time or is fresh.
func TestAGatewayWithoutItsLeaderAnswersNoOldRead(t *testing.T) {
	for name, directions := range map[string]faultnet.Direction{
		"requests are lost": faultnet.Up, "acknowledgements are lost": faultnet.Down, "half-open": faultnet.Both,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				for _, to := range coordinatorNames {
					c.net.link("g1", addressOf(to)).Lose(directions, true)
				}
				if _, err := c.submit("g2", "new", time.Minute); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					began := time.Now()
					found, stamp, err := c.reads("g1", "new", -1)
					if err == nil && !found {
						t.Errorf("a read of %+v lacks what was acknowledged", stamp)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("a read took %s", took)
					}
				}
				c.net.heal()
				if found, _, err := c.reads("g1", "new", time.Minute); !found {
					t.Errorf("after the fault: %v", err)
				}
			})
		})
	}
}

// Case 4: a client writes to the new leader through one gateway, and reads through another. That
// one still follows the old leader, which lives and is cut from the store.
func TestAReadThroughTheOldLeadersGatewayHoldsAWriteToTheNewOne(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, epoch := c.leading()
		for _, name := range coordinatorNames {
			if name != leader.name {
				c.net.link("g1", addressOf(name)).Refuse()
			}
		}
		leader.link.set(func() { leader.link.mu.up, leader.link.mu.down = true, true })
		c.nextLeader(epoch)
		for i := range 10 {
			id := fmt.Sprint("j", i)
			if _, err := c.submit("g2", id, time.Minute); err != nil {
				t.Fatal(err)
			}
			if found, stamp, err := c.reads("g1", id, -1); err == nil && !found {
				t.Errorf("a read of %+v lacks %s", stamp, id)
			}
		}
		leader.link.heal()
		c.net.heal()
		if found, _, err := c.reads("g1", "j9", time.Minute); !found {
			t.Errorf("after the fault: %v", err)
		}
	})
}

// Case 6: wall clocks of the leader and of gateways jump. Nothing is lost, no leader is deposed and
// no read waits for it.
func TestClockJumpsHaveNoEffect(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		leader, epoch := c.leading()
		for i, step := range []time.Duration{time.Hour, -2 * time.Hour, -time.Millisecond, time.Hour} {
			leader.stepClock(step)
			c.gateway("g1").stepClock(-step)
			id := fmt.Sprint("j", i)
			if _, err := c.submit("g1", id, -1); err != nil {
				t.Errorf("after a step of %s: %v", step, err)
			}
			if found, _, err := c.reads("relay", id, -1); !found || err != nil {
				t.Errorf("after a step of %s: found %v: %v", step, found, err)
			}
			sleep(t.Context(), time.Second)
		}
		if _, now := c.leading(); now != epoch {
			t.Errorf("epoch %d follows %d", now, epoch)
		}
	})
}

// Case 7: the store is restored from an older copy. Its revision is smaller, and gateways take it
// only because the epoch is higher.
func TestASmallerRevisionComesWithAHigherEpochOnly(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		if _, err := c.submit("g1", "kept", time.Minute); err != nil {
			t.Fatal(err)
		}
		old := c.quorum.read()
		if _, err := c.submit("g1", "later", time.Minute); err != nil {
			t.Fatal(err)
		}
		for _, r := range c.coordinators {
			r.kill()
		}
		sleep(t.Context(), 2*leaseTTL)
		_, epoch := c.leading()
		c.quorum.restore(old)
		for _, name := range coordinatorNames {
			c.restart(name)
		}
		c.nextLeader(epoch)
		for _, name := range gatewayNames {
			kept, stamp, err := c.reads(name, "kept", time.Minute)
			later, _, _ := c.reads(name, "later", time.Minute)
			if !kept || later || err != nil || stamp.Epoch <= epoch {
				t.Errorf("%s: kept: %v, later: %v, at %+v: %v", name, kept, later, stamp, err)
			}
		}
	})
}

// Case 8: the leader dies in front of a commit, behind it, before the reply, and while it loads.
// An acknowledged job is there, once. Any other job is there for all later reads, or for none.
func TestACrashAtAnyStepOfACommitLosesNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		acked := map[string]bool{}
		for i := range 8 {
			leader, epoch := c.leading()
			switch i % 4 {
			case 0:
				leader.link.crash(leader, false)
			case 1:
				leader.link.crash(leader, true)
			case 2:
				leader.link.set(func() { leader.link.mu.down = true }) // stored, and the leader does not know
				time.AfterFunc(500*time.Millisecond, leader.kill)
			default:
				c.arm(c.crash)
				leader.kill()
			}
			id := fmt.Sprint("j", i)
			_, err := c.submit("g1", id, -1)
			acked[id] = err == nil
			c.nextLeader(epoch)
			leader.link.heal()
			if leader.isKilled() {
				c.restart(leader.name)
			}
			c.allAnswer()
			first, _, err := c.reads("g1", id, time.Minute)
			if err != nil || acked[id] && !first {
				t.Errorf("%s was acknowledged: %v, and is there: %v, %v", id, acked[id], first, err)
			}
			for _, name := range gatewayNames {
				if found, _, err := c.reads(name, id, time.Minute); found != first || err != nil {
					t.Errorf("%s: %s is there: %v, and was: %v, %v", name, id, found, first, err)
				}
			}
		}
	})
}

// Case 12: a write has no answer. Strict reads through all gateways agree whether it was made, and
// never change their minds once another leader leads.
func TestReadsAfterAWriteOfUnknownOutcomeAgree(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		unknown := 0
		for i := range 6 {
			leader, epoch := c.leading()
			lost := func() {
				leader.link.mu.up, leader.link.mu.down = i%2 == 0, i%2 == 1
			}
			leader.link.set(lost)
			id := fmt.Sprint("j", i)
			_, err := c.submit("g1", id, -1)
			if plimsoll.CodeOf(err) == plimsoll.CodeOutcomeUnknown {
				unknown++
			} else if err == nil {
				t.Errorf("%s was acknowledged by a leader without its store", id)
			}
			c.nextLeader(epoch)
			leader.link.heal()
			c.allAnswer()
			first, _, err := c.reads("g2", id, time.Minute)
			if err != nil || first && i%2 == 0 {
				t.Errorf("%s, whose requests were lost, is there: %v, %v", id, first, err)
			}
			for range 3 {
				for _, name := range gatewayNames {
					if found, _, err := c.reads(name, id, time.Minute); found != first || err != nil {
						t.Errorf("%s: %s is there: %v, and was: %v, %v", name, id, found, first, err)
					}
				}
				sleep(t.Context(), leaseTTL)
			}
		}
		if unknown == 0 {
			t.Error("every outcome was known: the test tests nothing")
		}
	})
}

// Case 13: one client reads strictly, with a token and without a wait, at changing gateways and
// over a failover. A read with a token holds the token's version, and a strict one all before.
func TestReadsOfMixedConsistencyKeepTheirPromises(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		var token plimsoll.Version
		var errs []error
		for i := range 40 {
			if i == 20 {
				leader, epoch := c.leading()
				leader.kill()
				c.nextLeader(epoch)
				c.restart(leader.name)
				c.allAnswer()
			}
			if i%4 == 0 {
				status, err := c.submit("g1", fmt.Sprint("j", i), time.Minute)
				errs = append(errs, err)
				token.Revision = max(token.Revision, status.Revision)
			}
			at := gatewayNames[c.dice.intN(len(gatewayNames))]
			level := []plimsoll.Consistency{
				{}, {Level: plimsoll.FreshnessEventual}, plimsoll.AtLeast(token.Epoch, token.Revision),
			}[i%3]
			var stamp client.Stamp
			ctx := client.WithConsistency(client.WithStamp(t.Context(), &stamp), level)
			_, err := c.user(at, time.Minute).Queues(ctx)
			errs = append(errs, err)
			if level.Level != plimsoll.FreshnessEventual && !stamp.Holds(token) {
				t.Errorf("a read %+v at %s is of %+v, and the token of %+v", level, at, stamp, token)
			}
			if stamp.Compare(token) > 0 {
				token = stamp.Version
			}
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// Case 14: the stream to the gateways is never idle. Syncs are acknowledged in time.
func TestSyncsAreAcknowledgedOnABusyStream(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		for w := range 8 {
			u := c.user("g1", -1)
			writing.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					// The job only makes batches.
					_, _ = u.SubmitJob(ctx, calltest.Spec(fmt.Sprintf("j%d-%d", w, i), "ann", 1))
				}
			})
		}
		sleep(t.Context(), 50*time.Millisecond)
		for range 30 {
			for _, name := range []string{"g2", "behind"} {
				began := time.Now()
				if _, err := c.gateway(name).follower.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s: a sync took %s while the stream was busy", name, took)
				}
			}
		}
		cancel()
		writing.Wait()
	})
}
