package agent

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/nodekey"
)

func TestTheKeyIsMadeOnceAndIsForItsOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	first, err := openKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, keyFile)
	if err := os.Chmod(path, 0o644); err != nil { // as a copy of the directory may do
		t.Fatal(err)
	}
	second, err := openKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.Public() != second.Public() || first.Session() == second.Session() {
		t.Errorf("keys %s and %s, sessions %s and %s: another start has the same key and another session",
			first.Public(), second.Public(), first.Session(), second.Session())
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 || info.Size() != nodekey.SeedSize {
		t.Errorf("the key has mode %o and %d bytes", info.Mode(), info.Size())
	}
	other, err := openKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if other.Public() == first.Public() {
		t.Error("two directories have the same key")
	}
}

func TestADamagedKeyIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, keyFile)
	write(t, path, []byte("short"))
	if _, err := openKey(dir); plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "short" {
		t.Errorf("the file was changed to %q (%v)", data, err)
	}
}

func TestTheAgentAnswersTheChallengeForItsNodeAlone(t *testing.T) {
	key, err := openKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, nonce := proofHandler{"n1", key}, nodekey.Random(nodekey.NonceSize)
	answer, err := h.ProveNode(t.Context(), connect.NewRequest(&pb.ProveNodeRequest{Node: "n1", Nonce: nonce}))
	if err != nil || !nodekey.CheckAnswer("n1", key.Public(), nonce, answer.Msg.GetSignature()) {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	for _, bad := range []*pb.ProveNodeRequest{
		{Node: "n2", Nonce: nonce}, {Node: "n1"}, {Node: "n1", Nonce: bytes.Repeat(nonce, 2)},
	} {
		if _, err := h.ProveNode(t.Context(), connect.NewRequest(bad)); err == nil {
			t.Errorf("it answers %v", bad)
		}
	}
}

// An agent registers with its key, and each call has the key's session.
func TestEveryCallHasTheSessionOfTheKey(t *testing.T) {
	w := newWorld(t)
	stop, _ := w.run(w.config())
	defer stop() //nolint:errcheck // other tests check the result of Run
	w.cluster.assign("j.g.0", 1, plimsoll.TaskBound)
	w.super.until(w.ctx, func() bool { return w.super.starts[attemptKey{"j.g.0", 1}] == 1 })
	w.super.finish("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.awaitEnd("j.g.0", 1, plimsoll.ResultSucceeded, 0)
	w.cluster.until(w.ctx, func() bool { return w.cluster.beats > 0 })
	w.cluster.look(func() {
		if err := nodekey.CheckRegistration(&w.cluster.node, w.cluster.signature); err != nil {
			t.Error(err)
		}
		for _, call := range []string{"Heartbeat", "WatchAssignments", "ReportTasks"} {
			if session := w.cluster.sessions[call]; !nodekey.Proves(session, w.cluster.node.Session) {
				t.Errorf("%s came with the session %q", call, session)
			}
		}
	})
}

// An agent whose clock was wrong at its first start continues when the clock is right.
func TestAnIncarnationFromTheFutureIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	id := identity{"n1", math.MaxUint64}
	now := time.UnixMilli(1_800_000_000_000)
	if changed, err := id.rebase(dir, now); err != nil || !changed || id.Incarnation != 1_800_000_000_000 {
		t.Errorf("incarnation %d, changed %t, %v", id.Incarnation, changed, err)
	}
	if changed, err := id.rebase(dir, now.Add(time.Hour)); err != nil || changed {
		t.Errorf("one that is not ahead: incarnation %d, changed %t, %v", id.Incarnation, changed, err)
	}
	if next, err := beginIncarnation(dir, "", now); err != nil || next.Incarnation != 1_800_000_000_001 {
		t.Errorf("after the next start: %+v, %v", next, err)
	}
}

func TestAnAgentThatIsRefusedForItsIncarnationRegistersWithAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := newCluster()
		c.refuse = plimsoll.Invalid("incarnation", "7 is from the future")
		b.gateways["a"] = local{c}
		b.sessions.rebase = func() (uint64, bool, error) {
			c.change(func() { c.refuse = nil })
			return 5, true, nil
		}
		b.run()
		after(10 * time.Second)
		if c.registers != 1 || c.node.Incarnation != 5 {
			t.Errorf("%d registrations, the last with incarnation %d", c.registers, c.node.Incarnation)
		}
	})
}

// A registration of the node's id with another key does not end the agent: it registers again as
// soon as possible.
func TestAForeignKeyDoesNotEndTheAgent(t *testing.T) {
	for _, code := range []plimsoll.Code{plimsoll.CodeConflict, plimsoll.CodeDenied} {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := newCluster()
			b.gateways["a"] = local{c}
			b.run()
			c.disconnect(plimsoll.Errorf(code, "node %q belongs to an agent with another key", "n1"))
			after(10 * time.Minute)
			before := c.registers
			c.change(func() { c.refuse = nil })
			after(10 * time.Second)
			if c.registers != before+1 {
				t.Errorf("%d registrations after it was refused, want one more than %d", c.registers, before)
			}
		})
	}
}

func TestASocketOutsideOfTheDirectoryIsNoLogAddress(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Listen = "unix:/var/run/docker.sock" },
		func(c *Config) { c.Advertise = "unix:" + filepath.Join(c.Dir, "deeper", "agent.sock") },
	} {
		cfg := Config{Dir: t.TempDir(), Gateways: []string{"127.0.0.1:9080"}}
		if _, err := cfg.withDefaults(); err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		if _, err := cfg.withDefaults(); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
			t.Errorf("%s, %s: %v", cfg.Listen, cfg.Advertise, err)
		}
	}
}
