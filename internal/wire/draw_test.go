package wire

import (
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-dev/plimsoll"
)

// The generators below draw values over the whole range of each field, so that a field that is
// forgotten in a conversion shows.

func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z0-9.-]{1,20}`), rapid.String()).Draw(t, label)
}

func drawInt32(t *rapid.T, label string) int32 {
	return rapid.OneOf(rapid.Just(int32(0)), rapid.Int32()).Draw(t, label)
}

func drawInt64(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, label)
}

func drawUint64(t *rapid.T, label string) uint64 {
	return rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, label)
}

// drawEnum draws a value that this version has, or zero: nothing is set.
func drawEnum[T Enumeration](t *rapid.T, label string) T {
	highest := T(0)
	for (highest + 1).Known() {
		highest++
	}
	return T(rapid.Uint8Range(0, uint8(highest)).Draw(t, label))
}

func drawResources(t *rapid.T, label string) plimsoll.Resources {
	if rapid.Bool().Draw(t, label+" is nil") {
		return nil
	}
	names := rapid.SampledFrom([]string{"cpu", "memory", "disk", "nvidia.com/gpu", ""})
	return rapid.MapOfN(names, rapid.Int64(), 0, 4).Draw(t, label)
}

func drawTexts(t *rapid.T, label string) map[string]string {
	m := rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, label)
	if len(m) == 0 {
		return nil
	}
	return m
}

func drawSlice[T any](t *rapid.T, label string, draw func(*rapid.T) T) []T {
	s := rapid.SliceOfN(rapid.Custom(draw), 0, 4).Draw(t, label)
	if len(s) == 0 {
		return nil
	}
	return s
}

func drawTask(t *rapid.T) plimsoll.Task {
	task := plimsoll.Task{
		Job:       drawText(t, "job"),
		Group:     drawText(t, "group"),
		Index:     drawInt32(t, "index"),
		Attempt:   drawInt32(t, "attempt"),
		Failures:  drawInt32(t, "failures"),
		State:     drawEnum[plimsoll.TaskState](t, "state"),
		Result:    drawEnum[plimsoll.TaskResult](t, "result"),
		Node:      drawText(t, "node"),
		ExitCode:  drawInt32(t, "exit code"),
		Message:   drawText(t, "message"),
		Created:   drawInt64(t, "created"),
		Bound:     drawInt64(t, "bound"),
		Started:   drawInt64(t, "started"),
		Finished:  drawInt64(t, "finished"),
		NotBefore: drawInt64(t, "not before"),
		Revision:  drawUint64(t, "revision"),
		Earlier:   drawSlice(t, "earlier", drawNodeAttempts),
		Starting:  drawInt64(t, "starting"),
		Stopping:  drawInt64(t, "stopping"),
		Attempts:  drawSlice(t, "attempts", drawAttempt),
	}
	task.ID = plimsoll.TaskID(task.Job, task.Group, task.Index)
	return task
}

func drawNodeAttempts(t *rapid.T) plimsoll.NodeAttempts {
	return plimsoll.NodeAttempts{Node: drawText(t, "node"), First: drawInt32(t, "first"), Last: drawInt32(t, "last")}
}

func drawAttempt(t *rapid.T) plimsoll.Attempt {
	return plimsoll.Attempt{
		Number:   drawInt32(t, "number"),
		Node:     drawText(t, "node"),
		Result:   drawEnum[plimsoll.TaskResult](t, "result"),
		ExitCode: drawInt32(t, "exit code"),
		Message:  drawText(t, "message"),
		Pending:  drawInt64(t, "pending"),
		Bound:    drawInt64(t, "bound"),
		Starting: drawInt64(t, "starting"),
		Started:  drawInt64(t, "started"),
		Stopping: drawInt64(t, "stopping"),
		Finished: drawInt64(t, "finished"),
	}
}

func drawJobStep(t *rapid.T) plimsoll.JobStep {
	return plimsoll.JobStep{
		State: drawEnum[plimsoll.JobState](t, "state"), At: drawInt64(t, "at"),
		Reason: drawEnum[plimsoll.StepReason](t, "reason"),
	}
}

func drawUID(t *rapid.T) plimsoll.UID {
	return plimsoll.MakeUID(drawInt64(t, "uid's time"), drawUint64(t, "uid's revision"))
}

func drawTaskReport(t *rapid.T) plimsoll.TaskReport {
	return plimsoll.TaskReport{
		Task:     drawText(t, "task"),
		Attempt:  drawInt32(t, "attempt"),
		State:    drawEnum[plimsoll.TaskState](t, "state"),
		Result:   drawEnum[plimsoll.TaskResult](t, "result"),
		ExitCode: drawInt32(t, "exit code"),
		Message:  drawText(t, "message"),
		At:       drawInt64(t, "at"),
		UID:      drawUID(t),
	}
}

func drawJobStatus(t *rapid.T) plimsoll.JobStatus {
	return plimsoll.JobStatus{
		ID:        drawText(t, "id"),
		Owner:     drawText(t, "owner"),
		Queue:     drawText(t, "queue"),
		State:     drawEnum[plimsoll.JobState](t, "state"),
		Reason:    drawText(t, "reason"),
		Killed:    rapid.Bool().Draw(t, "killed"),
		Submitted: drawInt64(t, "submitted"),
		Started:   drawInt64(t, "started"),
		Finished:  drawInt64(t, "finished"),
		Groups:    drawSlice(t, "groups", drawGroupStatus),
		Revision:  drawUint64(t, "revision"),
		UID:       drawUID(t),
		History:   drawSlice(t, "history", drawJobStep),
		Deleted:   rapid.Bool().Draw(t, "deleted"),

		UserLimits: rapid.Bool().Draw(t, "user limits"),
		LimitGroup: drawText(t, "limit group"),
	}
}

func drawGroupStatus(t *rapid.T) plimsoll.GroupStatus {
	g := plimsoll.GroupStatus{
		Name:  drawText(t, "name"),
		Count: drawInt32(t, "count"),
		Wait: plimsoll.WaitCause{
			Code: drawEnum[plimsoll.WaitCode](t, "wait code"), Queue: drawText(t, "wait queue"),
			Resource: drawText(t, "wait resource"), Asked: drawInt64(t, "wait asked"), Known: drawText(t, "wait known"),
		},
	}
	if rapid.Bool().Draw(t, "has counts") {
		g.Counts = plimsoll.TaskCounts{
			Pending: drawInt32(t, "pending"), Bound: drawInt32(t, "bound"), Starting: drawInt32(t, "starting"),
			Running: drawInt32(t, "running"), Stopping: drawInt32(t, "stopping"), Succeeded: drawInt32(t, "succeeded"),
			Failed: drawInt32(t, "failed"),
		}
	}
	return g
}

func drawGroupSpec(t *rapid.T) plimsoll.GroupSpec {
	return plimsoll.GroupSpec{
		Name:      drawText(t, "name"),
		Count:     drawInt32(t, "count"),
		Command:   drawSlice(t, "command", func(t *rapid.T) string { return drawText(t, "argument") }),
		Env:       drawTexts(t, "env"),
		WorkDir:   drawText(t, "work dir"),
		User:      drawText(t, "user"),
		UserGroup: drawText(t, "user group"),
		Resources: drawResources(t, "resources"),
		Retry: plimsoll.RetryPolicy{
			Kind:         drawEnum[plimsoll.RetryKind](t, "retry kind"),
			Limit:        drawInt32(t, "retry limit"),
			InitialDelay: time.Duration(drawInt64(t, "initial delay")),
			MaxDelay:     time.Duration(drawInt64(t, "max delay")),
		},
		MaxRuntime: time.Duration(drawInt64(t, "max runtime")),
		KillGrace:  time.Duration(drawInt64(t, "kill grace")),
		LogLimit:   drawInt64(t, "log limit"),

		Constraints: drawConstraints(t),
		Preferences: drawPreferences(t),
		Class:       drawEnum[plimsoll.Class](t, "class"),
		Priority:    drawInt32(t, "priority"),
	}
}

func drawJobSpec(t *rapid.T) plimsoll.JobSpec {
	return plimsoll.JobSpec{
		ID:     drawText(t, "id"),
		Owner:  drawText(t, "owner"),
		Queue:  drawText(t, "queue"),
		Labels: drawTexts(t, "labels"),
		Groups: drawSlice(t, "groups", drawGroupSpec),
		Token:  drawText(t, "token"),
	}
}

func drawNode(t *rapid.T) plimsoll.Node {
	return plimsoll.Node{
		ID:          drawText(t, "id"),
		Address:     drawText(t, "address"),
		Capacity:    drawResources(t, "capacity"),
		Attributes:  drawTexts(t, "attributes"),
		Incarnation: drawUint64(t, "incarnation"),
		Mode:        drawEnum[plimsoll.NodeMode](t, "mode"),
		Ready:       rapid.Bool().Draw(t, "ready"),
		Registered:  drawInt64(t, "registered"),
		Revision:    drawUint64(t, "revision"),
		Facts:       drawNodeFacts(t),
		Gate: plimsoll.NodeGate{
			Sequence: drawUint64(t, "sequence"), Closed: rapid.Bool().Draw(t, "closed"), Reason: drawText(t, "reason"),
		},
		Evictions: drawSlice(t, "evictions", func(t *rapid.T) plimsoll.Eviction {
			return plimsoll.Eviction{
				Job: drawText(t, "job"), Group: drawText(t, "group"), Index: drawInt32(t, "index"),
				Until: drawInt64(t, "until"),
			}
		}),
		Key:     drawText(t, "key"),
		Session: drawText(t, "session"),
		Peer:    drawText(t, "peer"),
		Occupied: plimsoll.NodeUse{
			CPU: drawInt64(t, "occupied cpu"), Memory: drawInt64(t, "occupied memory"),
		},
		OccupiedAt: drawInt64(t, "occupied at"),
	}
}

func drawNodeStatus(t *rapid.T) plimsoll.NodeStatus {
	return plimsoll.NodeStatus{
		ID: drawText(t, "id"), Allocated: drawResources(t, "allocated"), Tasks: drawInt32(t, "tasks"),
		SickUntil: drawInt64(t, "sick until"),
	}
}

func drawQueueConfig(t *rapid.T) plimsoll.QueueConfig { return drawQueueTree(t, 3) }

func drawQueueTree(t *rapid.T, depth int) plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{
		Name:       drawText(t, "name"),
		Parent:     rapid.Bool().Draw(t, "parent"),
		Guaranteed: drawResources(t, "guaranteed"),
		Max:        drawResources(t, "max"),
		MaxJobs:    drawInt32(t, "max jobs"),
		MaxTasks:   drawInt32(t, "max tasks"),
		Draining:   rapid.Bool().Draw(t, "draining"),
	}
	if depth > 0 {
		for range rapid.IntRange(0, 2).Draw(t, "children") {
			c.Queues = append(c.Queues, drawQueueTree(t, depth-1))
		}
	}
	return c
}

func drawQueueStatus(t *rapid.T) plimsoll.QueueStatus {
	return plimsoll.QueueStatus{
		Path:       drawText(t, "path"),
		Leaf:       rapid.Bool().Draw(t, "leaf"),
		Draining:   rapid.Bool().Draw(t, "draining"),
		Guaranteed: drawResources(t, "guaranteed"),
		Max:        drawResources(t, "max"),
		Allocated:  drawResources(t, "allocated"),
		Pending:    drawResources(t, "pending"),
		Jobs:       drawInt32(t, "jobs"),
		Running:    drawInt32(t, "running"),
		Waiting:    drawInt32(t, "waiting"),
		Past: rapid.SampledFrom([]map[string]float64{nil, {"cpu": 0.5}, {"memory": 1 << 40, "gpu": 1.0 / 3}}).
			Draw(t, "past"),
	}
}

func drawEvent(t *rapid.T) plimsoll.Event {
	return plimsoll.Event{
		Type:      plimsoll.EventType(rapid.Uint8().Draw(t, "type")),
		Change:    plimsoll.ChangeType(rapid.Uint8().Draw(t, "change")),
		Detail:    plimsoll.ChangeDetail(rapid.Uint16().Draw(t, "detail")),
		Time:      drawInt64(t, "time"),
		Object:    drawText(t, "object"),
		Reference: drawText(t, "reference"),
		Resources: drawResources(t, "resources"),
		Message:   drawText(t, "message"),
	}
}

func drawMutation(t *rapid.T) Mutation {
	m := Mutation{
		Kind:      Kind(rapid.Uint8Range(1, NumKinds-1).Draw(t, "kind")),
		Key:       drawText(t, "key"),
		Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
		Node:      drawText(t, "node"),
	}
	if rapid.Bool().Draw(t, "put") {
		m.Value = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "value")
	}
	return m
}

func drawBatch(t *rapid.T) Batch {
	b := Batch{
		Epoch:     drawUint64(t, "epoch"),
		Revision:  drawUint64(t, "revision"),
		Time:      drawInt64(t, "time"),
		Mutations: drawSlice(t, "mutations", drawMutation),
	}
	if rapid.Bool().Draw(t, "has events") {
		b.Events = EventChunk{FirstID: drawUint64(t, "first id"), Count: drawUint64(t, "count")}
		b.Events.Data = []byte(drawText(t, "data"))
		if len(b.Events.Data) == 0 {
			b.Events.Data = nil
		}
	}
	return b
}
