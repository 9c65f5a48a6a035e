package dev

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/agent"
	"github.com/plimsoll-dev/plimsoll/internal/coordinator"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
	"github.com/plimsoll-dev/plimsoll/internal/gateway"
	"github.com/plimsoll-dev/plimsoll/internal/replica"
	"github.com/plimsoll-dev/plimsoll/qos"
	"github.com/plimsoll-dev/plimsoll/qos/nodeqos"
)

// Roles report their events to the functions below, which write them to the log: for dev, and for
// roles in processes of their own.

// CoordinatorEvents logs the events of a coordinator.
func CoordinatorEvents(log *slog.Logger) coordinator.Events {
	return coordinator.Events{
		Standby: func(err error) { log.Info("standby: it takes over when the leader is gone", "reason", err) },
		NotFollowing: func(revision uint64, err error) {
			if revision == 0 {
				log.Warn("the standby cannot follow the leader, and has no copy of its state", "error", err)
				return
			}
			log.Warn("the standby cannot follow the leader, and keeps its copy", "revision", revision, "error", err)
		},
		CopyUnused: func(err error) {
			log.Warn("the copy of the leader's state is of no use, and everything is loaded", "error", err)
		},
		Following: func(epoch, revision uint64) {
			log.Info("the standby has a copy of the leader's state", "epoch", epoch, "revision", revision)
		},
		Deposed: func(epoch uint64, err error) {
			log.Warn("deposed: it writes and acknowledges nothing more, and stands by", "epoch", epoch, "reason", err)
		},
		Leading: func(epoch, revision uint64, listen string) {
			log.Info("leading", "epoch", epoch, "revision", revision, "listen", listen)
		},
		SteppedDown: func(epoch uint64) {
			log.Info("stepped down, as it was asked to", "epoch", epoch)
		},
		Failed: func(err error, pause time.Duration) {
			log.Error("the leadership failed", "error", err, "again in", pause.Round(time.Millisecond))
		},
		Disk: func(shortage string) {
			if shortage == "" {
				log.Info("the disk of the store has room again: jobs are taken in")
				return
			}
			log.Warn("the disk of the store is nearly full: no jobs are taken in", "reason", shortage)
		},
		Reading: func(err error) {
			log.Error("only reads are answered until there is space on the disk of the store", "reason", err)
		},
		QueuesRefused: func(err error) {
			e := fieldOf(err)
			log.Error("the queue file was refused and the tree stays as it was", "field", e.Field, "error", e.Msg)
		},
		QueueConfigRefused: func(err error) {
			e := fieldOf(err)
			log.Warn("a user's queues were refused and the tree stays as it was", "field", e.Field, "error", e.Msg)
		},
		QueuesReplaced: func() { log.Info("the queue file was read again and applied") },
		GatewayUnread: func(gateway string) {
			log.Warn("a gateway was cut off because it does not read its stream", "gateway", gateway)
		},
		Archive: func(trouble string) {
			if trouble == "" {
				log.Info("the archive takes ended jobs again")
				return
			}
			log.Error("the archive takes no jobs: those that have ended stay in the active state", "reason", trouble)
		},
		ArchiveStep: func(step coordinator.ArchiveStep) { log.Debug("a step of archiving is done", "step", step) },
	}
}

// fieldOf returns the error with the field that is wrong; without one it is the text alone.
func fieldOf(err error) *plimsoll.Error {
	var e *plimsoll.Error
	if !errors.As(err, &e) {
		e = &plimsoll.Error{Msg: err.Error()}
	}
	return e
}

// FollowerEvents logs the events between a gateway and the leader. A failure that repeats the one
// before has the level debug: several come in a second while the leader is away.
func FollowerEvents(log *slog.Logger) replica.FollowerEvents {
	last := "" // the follower calls both functions from one goroutine at a time
	return replica.FollowerEvents{
		Live: func(epoch, revision uint64, resumed bool) {
			last = ""
			log.Info("following the leader", "epoch", epoch, "revision", revision, "resumed", resumed)
		},
		Disconnected: func(err error, pause time.Duration) {
			level := slog.LevelWarn
			if err.Error() == last {
				level = slog.LevelDebug
			}
			last = err.Error()
			log.Log(context.Background(), level, "no leader", "error", err, "again in", pause)
		},
	}
}

// RelayEvents logs the events between a gateway and those that follow it.
func RelayEvents(log *slog.Logger) replica.SourceEvents {
	return replica.SourceEvents{
		Connected: func(gateway string, resumed bool) {
			log.Info("a gateway follows this one", "gateway", gateway, "resumed", resumed)
		},
		Disconnected: func(gateway string, err error) {
			log.Info("a gateway no longer follows this one", "gateway", gateway, "error", err)
		},
		Unread: func(gateway string) {
			log.Warn("a gateway was cut off because it does not read its stream", "gateway", gateway)
		},
		Refused: func(err error) { log.Warn("a message of a gateway was refused", "error", err) },
	}
}

// GatewayEvents logs the events of a gateway.
func GatewayEvents(log *slog.Logger) gateway.Events {
	return gateway.Events{
		Serving: func(address string) { log.Info("serving", "address", address) },
		Fault:   func(rpc string, err error) { log.Error("fault", "rpc", rpc, "error", err) },
		Cut: func(rpc, caller string, after time.Duration) {
			log.Warn(
				"a stream was cut because its caller did not read it", "rpc", rpc, "caller", caller, "unread for",
				after,
			)
		},
	}
}

// AgentEvents logs the events of an agent and of its QoS loop.
func AgentEvents(log *slog.Logger) agent.Events {
	return agent.Events{
		Registered: func(gateway string, node *plimsoll.Node) {
			log.Info(
				"registered", "gateway", gateway, "incarnation", node.Incarnation, "capacity", node.Capacity.String(),
			)
		},
		Disconnected: func(gateway string, err error, pause time.Duration) {
			log.Warn(
				"no session with a gateway; tasks go on", "gateway", gateway, "error", err, "retry in",
				pause.Round(time.Millisecond),
			)
		},
		SupervisorLost: func(err error, pause time.Duration) {
			log.Warn(
				"no connection to the supervisor; tasks go on", "error", err, "retry in", pause.Round(time.Millisecond),
			)
		},
		Limited: func(cgroups, reason string) {
			log.Warn("tasks run without some limits", "cgroup", cgroups, "why", reason)
		},
		Users: func(sentence string) {
			if os.Geteuid() == 0 {
				log.Info(sentence)
				return
			}
			log.Warn(sentence + "; see docs/security.md")
		},
		ReportsCut: func(bytes int64) {
			log.Warn(
				"the end of the reports that were kept on disk could not be read; it is made up for from the supervisor's records",
				"bytes", bytes,
			)
		},
		Left: func(running int, err error) {
			said := "the agent has stopped; no task runs"
			if running > 0 {
				said = "the agent has stopped; its tasks go on for the next agent of this directory"
			}
			if err != nil {
				said += "; the cluster could not be told, and will miss the node when it is silent"
				log.Warn(said, "running", running, "error", err)
				return
			}
			log.Info(said, "running", running)
		},
		NodeReportRefused: func(events int, err error) {
			log.Error(
				"a report of the node was refused for good; its wrong parts are left out", "events", events, "error",
				err,
			)
		},
		Trouble: func(t agent.Trouble) {
			level := slog.LevelWarn
			switch t.Kind {
			case agent.TroubleDisk, agent.TroubleKeepReports, agent.TroubleSendLog, agent.TroubleSendOutputs,
				agent.TroubleReport,
				agent.TroubleKeepPolicies, agent.TroubleReadPolicies,
				agent.TroubleQOS, agent.TroubleGroups:
				level = slog.LevelError
			}
			log.LogAttrs(
				context.Background(), level, string(t.Kind), attrs(t.Task, t.Attempt, t.Err, "policy", t.Policy)...,
			)
		},
		QOS: qosEvents(log),
	}
}

func qosEvents(log *slog.Logger) nodeqos.Events {
	return nodeqos.Events{
		Happened: func(e plimsoll.QOSEvent) {
			log := log
			if e.Task != "" {
				log = log.With("task", e.Task)
			}
			log.Info("to keep the node at its lines", "event", e.Text())
		},
		StepFailed: func(step *qos.Step, err error) {
			log.Warn(
				"a QoS action failed", "verb", step.Verb.String(), "task", step.Task, "attempt", step.Attempt, "rule",
				step.Rule, "error", err,
			)
		},
		Adopted: func(a nodeqos.Adopted) {
			log.Info("a task has less than its specification says, and there is no record why; it is given back", "task", a.Task, "attempt", a.Attempt,
				"quota", a.Quota, "shares", a.Shares, "idle", a.Idle)
		},
		OtherBoot: func(boot string) {
			log.Info(
				"the record of resources taken from tasks is of another boot, and no task has outlived it", "boot", boot,
			)
		},
		Trouble: func(t nodeqos.Trouble) {
			level := slog.LevelWarn
			switch t.Kind {
			case nodeqos.TroubleBurst, nodeqos.TroubleNoPressure:
				level = slog.LevelDebug
			case nodeqos.TroubleMeasure, nodeqos.TroubleLedger, nodeqos.TroubleSaveLedger:
				level = slog.LevelError
			}
			log.LogAttrs(context.Background(), level, string(t.Kind),
				attrs(t.Task, t.Attempt, t.Err, "group", t.Group, "resource", t.Resource, "path", t.Path)...)
		},
	}
}

// SupervisorEvents logs the events of a supervisor.
func SupervisorEvents(log *slog.Logger) executor.Events {
	return executor.Events{
		Started: func(caps executor.Capabilities) {
			if caps.Cgroups == "" {
				log.Warn(
					"tasks run without limits, and are killed by session and environment instead of by control group",
					"reason", caps.Limits,
				)
			} else {
				log.Info(
					"tasks run in control groups", "kind", caps.Cgroups, "group", caps.Subtree, "unlimited",
					caps.Limits,
				)
			}
			if caps.Trace != "" {
				log.Warn("programs are started through a shell", "reason", caps.Trace)
			}
		},
		Thawed: func(task string, attempt int32) {
			log.Info("an attempt stood still without an agent and runs again", "task", task, "attempt", attempt)
		},
		Trouble: func(t executor.Trouble) {
			level := slog.LevelWarn
			switch t.Kind {
			case executor.TroubleRecord, executor.TroubleRest, executor.TroubleKill, executor.TroubleStart,
				executor.TroubleLeftOver,
				executor.TroubleRequest, executor.TroubleAdopt:
				level = slog.LevelError
			}
			log.LogAttrs(
				context.Background(), level, string(t.Kind),
				attrs(t.Task, t.Attempt, t.Err, "group", t.Group, "op", t.Op)...,
			)
		},
	}
}

// attrs returns the attributes of a line about a failure, without the empty ones. others are keys
// and values.
func attrs(task string, attempt int32, err error, others ...string) []slog.Attr {
	var all []slog.Attr
	if task != "" {
		all = append(all, slog.String("task", task))
	}
	if attempt != 0 {
		all = append(all, slog.Int("attempt", int(attempt)))
	}
	for i := 0; i < len(others); i += 2 {
		if others[i+1] != "" {
			all = append(all, slog.String(others[i], others[i+1]))
		}
	}
	if err != nil {
		all = append(all, slog.Any("error", err))
	}
	return all
}
