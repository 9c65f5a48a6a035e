package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// repeat queues a command with a token for the next turn. Its text stands for the digest.
func (b *bench) repeat(token string, do engine.Operation) uint64 {
	b.nextID++
	digest := uint64(len(fmt.Sprintf("%T %+v", do, do)))
	b.queue = append(b.queue, engine.Command{ID: b.nextID, Do: do, Token: token, Digest: digest})
	return b.nextID
}

// count returns the wanted number of tasks of a job's group.
func (b *bench) count(job string) int32 { return b.engine.State().Job(job).Spec.Groups[0].Count }

// A scaling that is repeated after another client's scaling does not undo it: no client reads 5, 7,
// 5. The repetition is answered as the first one was, also by the next leader.
func TestARepeatedScalingDoesNotUndoAnothers(t *testing.T) {
	for _, crash := range []bool{false, true} {
		b := newBench(t, state.Config{}, state.Limits{})
		b.send(job("j", 1, 1000))
		b.settle()
		b.repeat("mine", &engine.ScaleJob{ID: "j", Count: 5})
		b.settle()
		b.repeat("theirs", &engine.ScaleJob{ID: "j", Count: 7})
		b.settle()
		if crash {
			b.crash()
		}
		again := b.repeat("mine", &engine.ScaleJob{ID: "j", Count: 5})
		b.settle()
		if err := b.reply(again); err != nil || b.count("j") != 7 {
			t.Fatalf(
				"crash %t: the repetition is answered with %v and leaves %d tasks, want 7", crash, err, b.count("j"),
			)
		}
		b.same()
	}
}

// A repeated kill succeeds, even after the job has ended. A second kill is a conflict then, and so
// are its repetitions.
func TestARepeatedKillIsNoConflict(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(job("j", 1, 1000))
	b.settle()
	b.repeat("first", &engine.KillJob{ID: "j"})
	b.settle()
	first := b.repeat("first", &engine.KillJob{ID: "j"})
	second := b.repeat("second", &engine.KillJob{ID: "j"})
	b.settle()
	if err := b.reply(first); err != nil {
		t.Fatal(err)
	}
	b.wantRefused(second, plimsoll.CodeConflict, "has already ended")
	want := b.reply(second).Error()
	b.crash()
	again := b.repeat("second", &engine.KillJob{ID: "j"})
	b.settle()
	b.wantRefused(again, plimsoll.CodeConflict, want)
}

// A command and its repetition in the same turn have one effect.
func TestARepetitionInTheSameTurn(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	action := plimsoll.Policy{Action: &plimsoll.Action{Name: "a", CoolDown: time.Second, DisableScheduling: true}}
	b.send(&engine.ApplyPolicies{Policies: []plimsoll.Policy{action}})
	b.settle()
	first := b.repeat("t", &engine.DeletePolicy{Ref: action.Ref()})
	again := b.repeat("t", &engine.DeletePolicy{Ref: action.Ref()})
	b.settle()
	for _, id := range []uint64{first, again} {
		if err := b.reply(id); err != nil {
			t.Errorf("command %d: %v", id, err)
		}
	}
}

// A repetition of applied policies reports the changes of the first time.
func TestRepeatedPoliciesSayWhatTheFirstTimeChanged(t *testing.T) {
	action := plimsoll.Policy{Action: &plimsoll.Action{Name: "a", CoolDown: time.Second, DisableScheduling: true}}
	b := newBench(t, state.Config{}, state.Limits{})
	for i := range 2 {
		b.repeat("t", &engine.ApplyPolicies{Policies: []plimsoll.Policy{action}})
		b.turn()
		outcomes, ok := b.out.Replies[0].Answer.([]state.PolicyOutcome)
		if !ok || len(outcomes) != 1 ||
			outcomes[0] != (state.PolicyOutcome{Ref: action.Ref(), Change: state.PolicyCreated}) {
			t.Errorf("time %d: %+v", i+1, b.out.Replies[0])
		}
		b.crash()
	}
}

// A refusal that may pass by itself is not stored: the repeated command is done once it can be.
func TestARefusalThatPassesIsNotRemembered(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{Ops: 40})
	b.send(job("j", 300, 1000))
	early := b.repeat("t", &engine.ScaleJob{ID: "j", Count: 2})
	b.settle()
	b.wantRefused(early, plimsoll.CodeUnavailable, "still being submitted; try again")
	late := b.repeat("t", &engine.ScaleJob{ID: "j", Count: 2})
	b.settle()
	if err := b.reply(late); err != nil || b.count("j") != 2 {
		t.Fatalf("%v, and %d tasks", err, b.count("j"))
	}
}

// A token belongs to one command.
func TestATokenOfAnotherCommandIsRefused(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(job("j", 1, 1000))
	b.settle()
	b.repeat("t", &engine.ScaleJob{ID: "j", Count: 5})
	other := b.repeat("t", &engine.KillJob{ID: "j"})
	b.settle()
	b.wantRefused(other, plimsoll.CodeInvalid, "token: was sent with another command")
	if b.engine.State().Job("j").Killed {
		t.Error("the job was killed")
	}
}

// The token of a submit can be read with its job. A command that is sent with it, and refused, does
// not change how the submit is answered when it is repeated.
func TestTheTokenOfASubmitCannotBeTakenFromIt(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.repeat("t", tokened(job("j", 1, 1000), "t"))
	b.settle()
	other := b.repeat("t", &engine.KillJob{ID: "nobody"})
	b.settle()
	b.wantCode(other, plimsoll.CodeNotFound)
	again := b.repeat("t", tokened(job("j", 1, 1000), "t"))
	b.settle()
	if err := b.reply(again); err != nil {
		t.Errorf("the repetition is answered with %v", err)
	}
	b.same()
}

// A known job answers a repetition of its submit. If it is forgotten within minutes, an outcome is
// left, so that a late repetition does not run the job again.
func TestASubmitOutlivesItsJob(t *testing.T) {
	b := newBench(t, state.Config{KeepEnded: 1e9}, state.Limits{})
	submit := func() *engine.SubmitJob { return tokened(job("j", 0, 1000), "t") }
	b.repeat("t", submit())
	b.settle()
	if n := len(b.records.outcomes); n != 0 {
		t.Errorf("%d outcomes are stored beside the job", n)
	}
	b.now += 2e9
	b.settle()
	if b.engine.State().Job("j") != nil {
		t.Fatal("the job is not forgotten: the test tests nothing")
	}
	b.crash()
	again := b.repeat("t", submit())
	b.settle()
	if err := b.reply(again); err != nil || b.engine.State().Job("j") != nil {
		t.Fatalf("the repetition gives %v, and the job is there: %t", err, b.engine.State().Job("j") != nil)
	}
	other := submit()
	other.Spec.ID = "k"
	refused := b.repeat("t", other)
	b.settle()
	b.wantCode(refused, plimsoll.CodeInvalid)
	b.same()
}

// Outcomes are remembered for ten minutes of the engine's clock. The engine wakes to drop them, and
// the store keeps none.
func TestOutcomesExpire(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{})
	b.send(job("j", 1, 1000))
	b.settle()
	b.repeat("t", &engine.ScaleJob{ID: "j", Count: 5})
	b.settle()
	_, wake, _ := b.engine.Turn(b.now, nil, &b.out)
	if want := b.now + int64(10*time.Minute); wake != want {
		t.Fatalf("the engine wants to be woken at %d, want %d", wake, want)
	}
	b.now = wake - 1
	b.repeat("other", &engine.ScaleJob{ID: "j", Count: 7})
	b.repeat("t", &engine.ScaleJob{ID: "j", Count: 5})
	b.settle()
	if b.count("j") != 7 {
		t.Fatal("the outcome was forgotten too early")
	}
	b.now = wake
	b.repeat("t", &engine.ScaleJob{ID: "j", Count: 5}) // gone and back in one turn
	b.settle()
	if _, stored := b.records.outcomes["t"]; b.count("j") != 5 || !stored {
		t.Fatalf("the outcome was not forgotten, or the new one is not stored: %t", stored)
	}
	b.same()
	b.now += int64(20 * time.Minute)
	b.settle()
	if n := len(b.records.outcomes); n != 0 {
		t.Errorf("%d outcomes are left in the store", n)
	}
}

// Calls that are refused, however many, do not make the outcome of a change go.
func TestRefusalsDoNotPushOutChanges(t *testing.T) {
	b := newBench(t, state.Config{MaxOutcomes: 20}, state.Limits{})
	b.send(job("j", 1, 1000))
	b.settle()
	b.repeat("mine", &engine.ScaleJob{ID: "j", Count: 5})
	b.settle()
	for i := range 100 {
		b.repeat(fmt.Sprint("t", i), &engine.KillJob{ID: "nobody"})
		b.settle()
	}
	b.send(&engine.ScaleJob{ID: "j", Count: 7})
	b.settle()
	b.crash()
	again := b.repeat("mine", &engine.ScaleJob{ID: "j", Count: 5})
	b.settle()
	if err := b.reply(again); err != nil || b.count("j") != 7 {
		t.Errorf("the repetition is answered with %v and leaves %d tasks, want 7", err, b.count("j"))
	}
	b.same()
}

// Outcomes are bounded in number and in bytes; the oldest go first.
func TestOutcomesAreBounded(t *testing.T) {
	for name, cfg := range map[string]state.Config{"number": {MaxOutcomes: 10}, "bytes": {MaxOutcomeBytes: 4000}} {
		b := newBench(t, cfg, state.Limits{})
		for i := range 100 {
			b.repeat(fmt.Sprint("t", i), &engine.KillJob{ID: strings.Repeat("x", 100)})
		}
		b.settle()
		n := len(b.records.outcomes)
		_, oldest := b.records.outcomes["t0"]
		_, newest := b.records.outcomes["t99"]
		if n == 0 || n > 25 || oldest || !newest {
			t.Errorf("%s: %d are left, the oldest %t, the newest %t", name, n, oldest, newest)
		}
		b.same()
	}
}

// An outcome counts until it is forgotten: when very many are due at once, those that wait for
// their turn are not done anew without being remembered.
func TestAnOutcomeCountsUntilItIsForgotten(t *testing.T) {
	b := newBench(t, state.Config{}, state.Limits{Ops: 40})
	b.send(job("j", 1, 1000))
	b.settle()
	for i := range 300 {
		b.repeat(fmt.Sprint("t", i), &engine.ScaleJob{ID: "j", Count: 5})
	}
	b.settle()
	b.now += int64(10 * time.Minute)
	b.repeat("t299", &engine.ScaleJob{ID: "j", Count: 5})
	b.turn()
	b.send(&engine.ScaleJob{ID: "j", Count: 7})
	b.turn()
	b.repeat("t299", &engine.ScaleJob{ID: "j", Count: 5})
	b.turn()
	if n := b.count("j"); n != 7 {
		t.Errorf("the repetition leaves %d tasks, want 7", n)
	}
	b.settle()
	b.same()
}
