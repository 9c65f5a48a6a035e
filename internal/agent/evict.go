package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// eviction is a stop that this node has decided on itself, because it exceeds a waterline.
type eviction struct {
	grace  time.Duration
	reason string
}

func (v *eviction) op(key attemptKey, once bool) op {
	return op{kind: opStop, task: key.task, once: once, stop: Stop{
		Task: key.task, Attempt: key.attempt, Grace: v.grace, Result: plimsoll.ResultEvicted, Message: v.reason,
	}}
}

// evict makes the supervisor stop an attempt with the result evicted, and returns when the stop has
// begun. It needs no gateway. The end is reported like any other, and until then the attempt's
// directory prevents a second start. An attempt that is already being stopped is left to that stop.
func (a *Agent) evict(
	ctx context.Context, l *ledger, task string, attempt int32, grace time.Duration, reason string,
) error {
	o, needed, err := l.beginEviction(task, attempt, eviction{grace, cleanMessage(reason)})
	if err != nil || !needed {
		return err
	}
	result, err := a.perform(ctx, l, &o)
	l.done(&o, result, err, time.Now())
	return err
}

// beginEviction decides whether an attempt can be evicted. If needed is true, the caller must
// perform the operation and then call done.
func (l *ledger) beginEviction(task string, attempt int32, v eviction) (o op, needed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var key attemptKey
	var e *entry
	for _, name := range l.mu.names[task] {
		if found := l.find(attemptKey{name, attempt}); found != nil && found.phase == phaseLive {
			key, e = attemptKey{name, attempt}, found
		}
	}
	switch {
	case e == nil:
		return op{}, false, plimsoll.Errorf(
			plimsoll.CodeNotFound, "attempt %d of task %q does not run on this node", attempt, task,
		)
	case e.stopping || e.ending || e.void:
		return op{}, false, nil
	case e.worth == nil:
		return op{}, false, plimsoll.Errorf(
			plimsoll.CodeConflict,
			"nothing is known of task %q yet, so it is left alone until a gateway can be reached", task,
		)
	}
	e.stopping = true
	l.mu.evicting[key] = v
	l.mu.busy++
	l.markDirty(key.task)
	return v.op(key, true), true, nil
}

// settleEvictions repeats the evictions that a new supervisor may not know.
func (l *ledger) settleEvictions() {
	keys := make([]attemptKey, 0, len(l.mu.evicting))
	for key := range l.mu.evicting {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b attemptKey) int {
		if c := strings.Compare(a.task, b.task); c != 0 {
			return c
		}
		return int(a.attempt) - int(b.attempt)
	})
	for _, key := range keys {
		e, v := l.find(key), l.mu.evicting[key]
		switch {
		case e == nil || e.phase != phaseLive:
			delete(l.mu.evicting, key)
		case !e.stopping:
			e.stopping = true
			l.mu.ops = append(l.mu.ops, v.op(key, false))
		}
	}
}
