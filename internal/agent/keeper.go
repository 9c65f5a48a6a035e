package agent

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/executor"
)

// keepInterval is the interval between sweeps.
const keepInterval = 10 * time.Second

// keptAttempt is an attempt that has ended, and its files.
type keptAttempt struct {
	key       attemptKey
	at        int64 // its end, in Unix nanoseconds; 0: unknown
	succeeded bool
	bytes     int64 // of its directory, at least AttemptBytes; without the task's own directory
	tooLarge  bool  // it alone is over the bound, and goes first
}

// noteEnded adds the attempts of a life that have ended to ended, once each. The caller holds mu.
func (l *ledger) noteEnded(name string) {
	_, wanted := l.wanted(name)
	for _, e := range l.mu.entries[name] {
		orphan := e.phase == phaseOrphan && !wanted // else its end is about to be reported
		if e.kept || !e.onDisk || !orphan && (e.phase != phaseEnded || !e.acked) {
			continue
		}
		e.kept = true
		l.mu.ended = append(l.mu.ended, keptAttempt{
			key: attemptKey{name, e.attempt}, at: e.end.At, succeeded: e.end.Result == plimsoll.ResultSucceeded,
		})
	}
}

// takeEnded returns the attempts that have ended since the last call.
func (l *ledger) takeEnded() []keptAttempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.mu.ended
	l.mu.ended = nil
	return ended
}

// removing reports whether directories can be removed now. While the agent is not connected none
// can.
func (l *ledger) removing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.synced && l.mu.connected
}

// mostAttempts returns how many attempts may be kept so that half of the uids stay free for tasks
// that run.
func mostAttempts(uids executor.UIDRange) int {
	if uids == (executor.UIDRange{}) {
		return math.MaxInt
	}
	return max(int((uint64(uids.Last)-uint64(uids.First)+1)/2), 1)
}

// keeper bounds the files of ended attempts, by bytes and by age. A sweep measures the attempts
// that have ended since the last one, and the own directory of each of their tasks. An attempt that
// is kept is not measured again. The cost of one grows with the logarithm of the number of those
// kept.
//
// One goroutine uses it.
type keeper struct {
	ledger *ledger
	bounds LogBounds
	most   int // attempts
	usage  func(ctx context.Context, dir string) int64

	// succeeded and failed are the kept attempts, the oldest first.
	succeeded, failed keptQueue
	tasks             map[string]*keptTask
	bytes             int64 // of all attempts and of the tasks' own directories
	metrics           *keptMetrics
}

// keptTask is a task with kept attempts.
type keptTask struct {
	attempts int
	work     int64 // bytes of the task's own directory, after the last end of an attempt
}

func newKeeper(l *ledger, bounds LogBounds, most int) *keeper {
	return &keeper{
		ledger: l, bounds: bounds, most: most, usage: diskUsage,
		tasks: map[string]*keptTask{}, metrics: newKeptMetrics(bounds.Bytes),
	}
}

// sweep adds the attempts that have ended, and retires those over the bounds. An attempt that may
// not be removed yet stays for the next sweep.
func (k *keeper) sweep(ctx context.Context, now time.Time) error {
	defer k.show()
	work := map[string]int64{} // of the tasks that are measured
	for _, a := range k.ledger.takeEnded() {
		if _, ok := work[a.key.task]; !ok {
			work[a.key.task] = k.usage(ctx, filepath.Join(k.ledger.root, a.key.task, workDir))
		}
		k.add(ctx, a, work[a.key.task], now)
	}
	if ctx.Err() != nil || !k.ledger.removing() {
		return nil
	}
	var failed error
	var later []keptAttempt // may not be removed yet
	going := int64(0)       // their bytes, for which no others have to go
	retire := func(q *keptQueue, bound string, over func(oldest *keptAttempt) bool) {
		for q.Len() > 0 && ctx.Err() == nil && over(&(*q)[0]) {
			a, _ := heap.Pop(q).(keptAttempt)
			gone, err := k.ledger.retire(a.key)
			failed = errors.Join(failed, err)
			if gone {
				why := bound
				if a.tooLarge {
					why = keptRoom
				}
				k.metrics.gone(why, k.subtract(&a))
				continue
			}
			later = append(later, a)
			if going += a.bytes; k.tasks[a.key.task].attempts == 1 {
				going += k.tasks[a.key.task].work
			}
		}
	}
	olderThan := func(age time.Duration) func(*keptAttempt) bool {
		return func(a *keptAttempt) bool { return now.Sub(time.Unix(0, a.at)) > age }
	}
	overBytes := func(*keptAttempt) bool {
		return k.bytes-going > k.bounds.Bytes || k.succeeded.Len()+k.failed.Len() > k.most
	}
	retire(&k.succeeded, keptAge, olderThan(k.bounds.Age))
	retire(&k.failed, keptAge, olderThan(k.bounds.FailedAge))
	retire(&k.succeeded, keptRoom, overBytes)
	retire(&k.failed, keptRoom, overBytes)
	for i := range later {
		k.push(&later[i])
	}
	return failed
}

// add measures an attempt. Work is the bytes of its task's own directory. An attempt that alone is
// over the bound is retired at once, so that it takes no others with it.
func (k *keeper) add(ctx context.Context, a keptAttempt, work int64, now time.Time) {
	dir := k.ledger.attemptDir(a.key)
	a.bytes = max(k.usage(ctx, dir), AttemptBytes)
	if a.at == 0 { // nothing is known of its end
		a.at = now.UnixNano()
		if info, err := os.Lstat(dir); err == nil {
			a.at = info.ModTime().UnixNano()
		}
	}
	t := k.tasks[a.key.task]
	if t == nil {
		t = &keptTask{}
		k.tasks[a.key.task] = t
	}
	t.attempts++
	k.bytes += a.bytes + work - t.work
	t.work = work
	if a.bytes+t.work > k.bounds.Bytes {
		a.at, a.succeeded, a.tooLarge = 0, true, true
	}
	k.push(&a)
}

func (k *keeper) push(a *keptAttempt) {
	q := &k.failed
	if a.succeeded {
		q = &k.succeeded
	}
	heap.Push(q, *a)
}

// subtract takes a retired attempt from the sums, and with the last one of a task the task's own
// directory. It returns the bytes of both.
func (k *keeper) subtract(a *keptAttempt) (bytes int64) {
	bytes = a.bytes
	t := k.tasks[a.key.task]
	if t.attempts--; t.attempts == 0 {
		bytes += t.work
		delete(k.tasks, a.key.task)
	}
	k.bytes -= bytes
	return bytes
}

// show sets the metrics of the kept attempts.
func (k *keeper) show() {
	k.metrics.bytes.Set(float64(k.bytes))
	k.metrics.attempts.Set(float64(k.succeeded.Len() + k.failed.Len()))
}

// keptQueue is a heap of attempts, the oldest end first.
type keptQueue []keptAttempt

func (q keptQueue) Len() int           { return len(q) }
func (q keptQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q keptQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for heap.Push.
func (q *keptQueue) Push(x any) {
	a, _ := x.(keptAttempt)
	*q = append(*q, a)
}

// Pop is for heap.Pop.
func (q *keptQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = keptAttempt{}
	*q = (*q)[:last]
	return a
}
