package coordinator

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/internal/store"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

// A rejected job is durable when its refusal is told: the next leader has it, and its event.
func TestARejectedJobOutlivesTheLeader(t *testing.T) {
	fs := vfs.NewMem()
	l := lead(t, Config{}, openStore(t, fs, store.Limits{}))
	spec := job("lost", 1)
	spec.Queue = "root.nowhere"
	_, refused := l.Do(t.Context(), submit(spec))
	if plimsoll.CodeOf(refused) != plimsoll.CodeInvalid {
		t.Fatalf("it was answered with %v", refused)
	}
	check := func(s *replica.Snapshot) {
		t.Helper()
		data, has := s.Get(wire.KindJobStatus, "lost")
		if !has {
			t.Fatal("it has left no record")
		}
		status, err := wire.DecodeJobStatus(data)
		if err != nil || status.State != plimsoll.JobRejected || status.Reason == "" {
			t.Errorf("its record is %+v, %v", status, err)
		}
	}
	check(l.Latest())
	_, before := events(t, l.Latest())
	l.stop()
	l = lead(t, Config{}, openStore(t, fs, store.Limits{}))
	defer l.stop()
	check(l.Latest())
	if _, after := events(t, l.Latest()); len(after) < len(before) {
		t.Errorf("%d events are left of %d", len(after), len(before))
	}
	l.must(submit(job("lost", 1)))
}
