package coordinator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// asked returns a request of a kind, with so many bytes.
func asked(c *Coordinator, kind string, bytes int) request {
	return request{command: c.commands.byName[protoreflect.Name(kind)], do: &engine.KillJob{ID: "x"}, bytes: bytes}
}

// The inbox is bounded by 256 MiB, not only by a number of commands.
func TestTheInboxIsBoundedByBytes(t *testing.T) {
	c, err := New(Config{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newInbox(c.cfg.MaxInbox, c.cfg.MaxInboxBytes)
	taken := 0
	for b.push(asked(c, "submit_job", 8<<20)) == "" {
		taken++
	}
	if taken != 192/8 {
		t.Errorf("%d submits of 8 MiB were taken, want those of three quarters of 256 MiB", taken)
	}
	if bound := b.push(asked(c, "submit_job", 8<<20)); bound != boundBytes {
		t.Errorf("it is full by %q", bound)
	}
	if err := b.inboxFull(boundBytes); plimsoll.CodeOf(err) != plimsoll.CodeExhausted ||
		!strings.Contains(err.Error(), "268435456") {
		t.Errorf("the refusal is %v", err)
	}
	if bound := b.push(asked(c, "kill_job", 512)); bound != boundBytes {
		t.Errorf("a small one: %q", bound)
	}
}

// Users who have filled the inbox, by bytes or by number, do not keep agents out.
func TestAgentsReportWhenUsersHaveFilledTheInbox(t *testing.T) {
	c, err := New(Config{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, submit := range map[string]int{boundBytes: 64 << 10, boundCommands: 1} {
		b := newInbox(1000, 10<<20)
		for b.push(asked(c, "submit_job", submit)) == "" {
			continue
		}
		if bound := b.push(asked(c, "submit_job", submit)); bound != name {
			t.Fatalf("users have filled it by %q, want %q", bound, name)
		}
		for _, kind := range []string{"register_node", "node_liveness", "report_tasks", "report_node"} {
			if bound := b.push(asked(c, kind, 4<<10)); bound != "" {
				t.Errorf("full by %s: %s is refused by %q", name, kind, bound)
			}
		}
		for n := 0; b.push(asked(c, "report_tasks", 4<<10)) == ""; n++ {
			if n > 1000 {
				t.Fatal("agents have no bound")
			}
		}
	}
}

// Streams that begin and end without pause are bounded, and take no room from commands.
func TestNewsOfGatewaysTakesNoRoomFromCommands(t *testing.T) {
	c, err := New(Config{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newInbox(10, 10<<20)
	for b.admit() == nil {
		b.gatewayConnected("g", false)
		b.gatewayDisconnected("g", nil)
		if b.waiting().own > maxOwn {
			t.Fatal("news of gateways have no bound")
		}
	}
	if err := b.admit(); plimsoll.CodeOf(err) != plimsoll.CodeExhausted {
		t.Errorf("a further stream: %v", err)
	}
	for _, kind := range []string{"submit_job", "report_tasks"} {
		if bound := b.push(asked(c, kind, 1)); bound != "" {
			t.Errorf("%s is refused by %q", kind, bound)
		}
	}
	if b.drain(nil, maxOwn); b.admit() != nil || b.waiting() != (inboxLoad{commands: 2, bytes: 2}) {
		t.Errorf("%+v waits (%v)", b.waiting(), b.admit())
	}
}

// Drained commands count until the engine has taken them.
func TestBytesCountUntilTheEngineHasTakenThem(t *testing.T) {
	c, err := New(Config{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newInbox(100, 4000)
	b.push(asked(c, "submit_job", 1000))
	b.push(asked(c, "submit_job", 2000))
	d := pendingCommands{waiting: map[uint64]request{}}
	d.take(b.drain(nil, 10))
	if bound := b.push(asked(c, "kill_job", 100)); bound != boundBytes {
		t.Errorf("the engine has taken none and there is room (%q)", bound)
	}
	if n := d.bytes(1); n != 1000 {
		t.Errorf("the first takes %d bytes", n)
	}
	b.taken(d.bytes(1))
	d.done(nil, 1, nil)
	if bound := b.push(asked(c, "kill_job", 100)); bound != "" {
		t.Errorf("the engine has taken the first, but it is full by %q", bound)
	}
	b.taken(d.bytes(1))
	d.done(nil, 1, nil)
	if load := b.waiting(); load != (inboxLoad{commands: 1, bytes: 100}) {
		t.Errorf("%+v waits", load)
	}
}

// A leader whose disk hangs refuses commands by bytes, counts the refusals, and goes on later.
func TestAFullInboxIsCountedAndRecovers(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		stall := make(chan struct{})
		led := begun(t, Config{MaxInboxBytes: 400 * commandBytes}, &memory{stall: stall})
		answers := make(chan *pb.Reply, 1000)
		for range 500 {
			led.exec(context.Background(), "gw", kill("nope"), func(r *pb.Reply) { answers <- r })
			synctest.Wait()
		}
		refused := len(answers)
		for range refused {
			if r := <-answers; code(r) != plimsoll.CodeExhausted ||
				!strings.Contains(r.GetError().GetMessage(), "bytes") {
				t.Fatalf("answered %v", r)
			}
		}
		if counted := value(
			t, led.metrics.inboxRefused.WithLabelValues(boundBytes),
		); int(counted) != refused || refused < 500-300-pipeline {
			t.Errorf("%d were refused and %v counted", refused, counted)
		}
		report := &pb.Command{Kind: &pb.Command_NodeLiveness{NodeLiveness: &pb.NodeLiveness{Node: "n"}}}
		led.exec(context.Background(), "gw", report, func(r *pb.Reply) { answers <- r })
		close(stall)
		synctest.Wait()
		for range 500 - refused + 1 {
			if r := <-answers; code(r) == plimsoll.CodeExhausted {
				t.Errorf("answered %v", r)
			}
		}
		if load := led.inbox.waiting(); load != (inboxLoad{}) {
			t.Errorf("%+v still waits", load)
		}
	})
}
