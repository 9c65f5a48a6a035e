package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// foundWithin is the longest that a lost link may stay unnoticed.
const foundWithin = 4 * time.Second

// A link that drops everything without a word is replaced in at most four seconds, also if nobody
// reads meanwhile. Nobody is told anything stale.
func TestALostLinkIsReplacedWithinFourSeconds(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		wait(t.Context(), 10*time.Minute) // an idle link is no lost one
		if len(b.breaks) > 0 || b.hellos.Load() != 1 {
			t.Fatalf("an idle link was given up: %v", <-b.breaks)
		}
		lost := time.Now()
		b.network.lose(false)
		b.publish()
		live := <-b.lives
		if took := live.Sub(lost); took > foundWithin {
			t.Errorf("the link was replaced after %s", took)
		}
		if err := <-b.breaks; !errors.Is(err, errReplaced) {
			t.Errorf("the reason given is %v", err)
		}
		if err := b.read(time.Second); err != nil {
			t.Errorf("a read over the new link: %v", err)
		}
	})
}

// Reads while the link is lost fail or wait, and show everything if they are answered.
func TestReadsOverALostLinkAreNeverStale(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		lost := time.Now()
		b.network.lose(false)
		b.publish()
		failed := 0
		for b.read(100*time.Millisecond) != nil {
			failed++
		}
		if took := time.Since(lost); failed == 0 || took > foundWithin {
			t.Errorf("after %s and %d reads that failed one was answered", took, failed)
		}
	})
}

// A barrier that times out makes the follower check the link at once, and try another connection in
// parallel: it does not wait for the link to be silent for long.
func TestABarrierThatTimesOutStartsACheckAtOnce(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		lost, dials := time.Now(), b.network.Dials()
		b.network.lose(false)
		if err := b.read(100 * time.Millisecond); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
			t.Fatalf("a read over a lost link: %v", err)
		}
		synctest.Wait()
		if b.network.Dials() != dials+1 {
			t.Error("no other connection is tried when a barrier has timed out")
		}
		if took := (<-b.lives).Sub(lost); took != 100*time.Millisecond+linkGrace {
			t.Errorf("the link was replaced after %s", took)
		}
	})
}

// A link on which the leader's batches come and the gateway's syncs are lost is not silent. The
// barrier that times out finds it.
func TestALinkThatIsLostInOneDirectionIsReplaced(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		b.network.loseUp()
		done := make(chan struct{})
		defer func() { <-done }()
		ctx := t.Context()
		go func() {
			defer close(done)
			for range 100 {
				b.publish()
				wait(ctx, 100*time.Millisecond)
			}
		}()
		lost := time.Now()
		if err := b.read(3 * time.Second); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
			t.Errorf("a read that is not heard: %v", err)
		}
		if took := (<-b.lives).Sub(lost); took > foundWithin {
			t.Errorf("the link was replaced after %s", took)
		}
		if err := b.read(time.Second); err != nil {
			t.Errorf("a read over the new link: %v", err)
		}
	})
}

// A leader that does not confirm, but answers, keeps its link: its gateway's nodes would have to
// register again for nothing.
func TestALinkThatAnswersIsKept(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		slow := make(chan struct{})
		b := startBubble(t, SourceConfig{Confirm: func(ctx context.Context) error {
			select {
			case <-slow:
			case <-ctx.Done():
			}
			return nil
		}})
		for range 20 {
			if err := b.read(300 * time.Millisecond); plimsoll.CodeOf(err) != plimsoll.CodeDeadline {
				t.Fatalf("a read without a proof: %v", err)
			}
		}
		close(slow)
		if err := b.read(time.Second); err != nil {
			t.Error(err)
		}
		if len(b.breaks) > 0 || b.hellos.Load() != 1 {
			t.Errorf("%d streams, broken by %v", b.hellos.Load(), <-b.breaks)
		}
		if n := b.network.Dials(); n > 10 {
			t.Errorf("20 barriers that timed out in 6 s made %d connections", n)
		}
	})
}

// Without any way to the leader the link is found to be lost in four seconds too: readers are told
// at once then. When there is a way again it is found soon, and the leader hears one hello.
func TestALeaderOutOfReachIsFoundAndComesBack(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		lost := time.Now()
		b.network.lose(true)
		b.publish()
		if err := <-b.breaks; !errors.Is(err, errLost) {
			t.Errorf("the reason given is %v", err)
		}
		if took := time.Since(lost); took > foundWithin || b.follower.Connected() {
			t.Errorf("the link was found to be lost after %s", took)
		}
		asked := time.Now()
		if err := b.read(time.Minute); plimsoll.CodeOf(err) != plimsoll.CodeUnavailable || time.Since(asked) > 0 {
			t.Errorf("a read without a leader took %s: %v", time.Since(asked), err)
		}
		wait(t.Context(), time.Minute)
		b.network.Heal()
		healed := time.Now()
		if took := (<-b.lives).Sub(healed); took > attemptEvery+DefaultMaxBackoff {
			t.Errorf("the leader was reached %s after the network was whole", took)
		}
		if err := b.read(time.Second); err != nil {
			t.Error(err)
		}
		if n := b.hellos.Load(); n != 2 {
			t.Errorf("the leader heard %d hellos of one gateway that came back once", n)
		}
	})
}

// A leader that is killed and started again after a minute is followed a quarter of a second after
// its port answers, at the latest.
func TestARestartedLeaderIsFollowedSoon(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := startBubble(t, SourceConfig{})
		b.network.Refuse()
		b.network.Cut()
		wait(t.Context(), time.Minute)
		b.network.Heal()
		answers := time.Now()
		if took := (<-b.lives).Sub(answers); took > 250*time.Millisecond {
			t.Errorf("the leader was followed after %s", took)
		}
		if err := b.read(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// A leader that takes long to answer is reached: a later attempt does not end an earlier one.
func TestALeaderThatAnswersLateIsReached(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := makeBubble(t, SourceConfig{})
		b.answer.Store(int64(7 * time.Second))
		began := time.Now()
		b.run()
		if took := (<-b.lives).Sub(began); took != 7*time.Second || len(b.breaks) > 0 {
			t.Errorf("it took %s with %d failures", took, len(b.breaks))
		}
	})
}

// An attempt that is lost on the way is not waited for: two seconds later another one is under way.
func TestAnAttemptThatIsLostIsNotWaitedFor(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		b := makeBubble(t, SourceConfig{})
		b.network.lose(true)
		began := time.Now()
		b.run()
		wait(t.Context(), 100*time.Millisecond)
		b.network.Heal()
		if took := (<-b.lives).Sub(began); took != 2*time.Second {
			t.Errorf("the leader was reached after %s", took)
		}
	})
}

// A read that is answered shows everything that was committed when it began, however the link
// fails. Once the network is whole, reads are answered in four seconds.
func TestReadsAreFreshWhateverHappensToTheLink(t *testing.T) {
	rng := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	for range testrun.Count(10, 25, 5000) {
		testrun.Bubble(t, func(t *testing.T) { disturb(t, rng) })
	}
}

// disturb does twenty random things to a link while somebody reads.
func disturb(t *testing.T, rng *rand.Rand) {
	b := startBubble(t, SourceConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	reads := rand.New(rand.NewPCG(rng.Uint64(), 0))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// One may fail; one that is answered must be fresh.
			_ = b.read(time.Duration(reads.Int64N(int64(4 * time.Second))))
			wait(ctx, 50*time.Millisecond)
		}
	}()
	for range 20 {
		switch rng.IntN(7) {
		case 0:
			b.network.lose(false)
		case 1:
			b.network.lose(true)
		case 2:
			b.network.loseUp()
		case 3:
			b.network.Refuse()
		case 4:
			b.network.Cut()
		default:
			b.network.Heal()
		}
		b.publish()
		wait(ctx, time.Duration(rng.Int64N(int64(3*time.Second))))
	}
	b.network.Heal()
	wait(ctx, foundWithin)
	if err := b.read(time.Second); err != nil {
		t.Errorf("%s after the network was whole a read fails: %v", foundWithin, err)
	}
	cancel()
	<-ended
}

// Silence is counted in looks. A gateway that stood still has not looked, and blames nobody.
func TestSilenceIsCountedInLooks(t *testing.T) {
	var s silence
	for range 100 {
		if check, lost := s.tick(true); check || lost {
			t.Fatal("a link that is heard is suspected")
		}
	}
	var checks []int
	for i := 1; ; i++ {
		check, lost := s.tick(false)
		if check {
			checks = append(checks, i)
		}
		if lost {
			if i != lostAfter || len(checks) != 2 || checks[0] != checkAfter || checks[1] != checkAfter+checkEvery {
				t.Errorf("lost in look %d, checked in %v", i, checks)
			}
			break
		}
	}
	if check, lost := s.tick(true); check || lost {
		t.Error("a link that is heard again is suspected")
	}
}

// Barriers that time out one after the other cost the leader a connection a second, no more, and
// none of them is forgotten.
func TestDoubtsArePaced(t *testing.T) {
	var s silence
	if !s.suspect() {
		t.Error("the first suspicion is not followed at once")
	}
	if s.suspect() {
		t.Error("the second suspicion is followed at once")
	}
	for i := 1; i <= checkEvery; i++ {
		if check, _ := s.tick(true); check != (i == checkEvery) {
			t.Errorf("look %d after the first check: %v", i, check)
		}
	}
}
