package dev_test

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/dev"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// Every event of a role is logged, except those that a gateway reports of each node: the nodes'
// agents log them.
func TestAllEventsAreLogged(t *testing.T) {
	unlogged := []string{"gateway.Events.NodeSilent", "gateway.Events.Registered"}
	log := slog.New(slog.DiscardHandler)
	var check func(v reflect.Value)
	check = func(v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().String() + "." + v.Type().Field(i).Name
			switch field := v.Field(i); {
			case field.Kind() == reflect.Struct:
				check(field)
			case field.IsNil() != slices.Contains(unlogged, name):
				t.Errorf("%s: nil is %v", name, field.IsNil())
			}
		}
	}
	for _, events := range []any{
		dev.CoordinatorEvents(log), dev.FollowerEvents(log), dev.GatewayEvents(log), dev.AgentEvents(log),
		dev.SupervisorEvents(log),
	} {
		check(reflect.ValueOf(events))
	}
}

// A line has its level, the event and its subject, and leaves out empty attributes.
func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	boom := errors.New("boom")
	coordinator, node, supervisor := dev.CoordinatorEvents(log), dev.AgentEvents(log), dev.SupervisorEvents(log)
	for _, test := range []struct {
		tell func()
		want string
	}{
		{func() { coordinator.Leading(3, 7, "unix:/s") }, "level=INFO msg=leading epoch=3 revision=7 listen=unix:/s"},
		{
			func() { coordinator.Failed(boom, 1500*time.Millisecond) },
			`level=ERROR msg="the leadership failed" error=boom "again in"=1.5s`,
		},
		{
			func() { coordinator.Archive("no space left") },
			`level=ERROR msg="the archive takes no jobs: those that have ended stay in the active state" reason="no space left"`,
		},
		{func() { coordinator.Archive("") }, `level=INFO msg="the archive takes ended jobs again"`},
		{func() { coordinator.ArchiveStep("written") }, `level=DEBUG msg="a step of archiving is done" step=written`},
		{func() { coordinator.QueuesReplaced() }, `level=INFO msg="the queue file was read again and applied"`},
		{
			func() { coordinator.QueuesRefused(plimsoll.Invalid("root.b", "has jobs")) },
			`level=ERROR msg="the queue file was refused and the tree stays as it was" field=root.b error="has jobs"`,
		},
		{
			func() { coordinator.QueueConfigRefused(plimsoll.Invalid("root.b", "has jobs")) },
			`level=WARN msg="a user's queues were refused and the tree stays as it was" field=root.b error="has jobs"`,
		},
		{
			func() { node.Trouble(agent.Trouble{Kind: agent.TroublePolicy, Policy: "Action shed", Err: boom}) },
			`level=WARN msg="a policy was left out" policy="Action shed" error=boom`,
		},
		{
			func() { node.Trouble(agent.Trouble{Kind: agent.TroubleKeepReports, Err: boom}) },
			`level=ERROR msg="reports are not kept on disk" error=boom`,
		},
		{
			func() {
				node.QOS.Trouble(nodeqos.Trouble{Kind: nodeqos.TroubleBurst, Task: "a.b.0", Attempt: 2, Err: boom})
			},
			`level=DEBUG msg="a protected task got no burst" task=a.b.0 attempt=2 error=boom`,
		},
		{
			func() {
				supervisor.Trouble(executor.Trouble{Kind: executor.TroubleStart, Task: "a.b.0", Attempt: 1, Err: boom})
			},
			`level=ERROR msg="an attempt could not be started" task=a.b.0 attempt=1 error=boom`,
		},
		{
			func() { supervisor.Started(executor.Capabilities{Cgroups: "v2", Subtree: "/plimsoll/n1"}) },
			`level=INFO msg="tasks run in control groups" kind=v2 group=/plimsoll/n1 unlimited=""`,
		},
	} {
		out.Reset()
		test.tell()
		if _, line, _ := strings.Cut(out.String(), " "); line != test.want+"\n" {
			t.Errorf("%swant\n%s", line, test.want)
		}
	}
}
