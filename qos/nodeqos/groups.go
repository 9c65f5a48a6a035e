package nodeqos

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// syncGroups matches the groups with the tasks that are there now. It opens new groups, closes
// those of gone tasks, and reads each group in its turn.
func (s *loopState) syncGroups(l *Loop, pressure bool) {
	for i := range s.tasks {
		t := &s.tasks[i]
		g := s.groups[t.Key()]
		if g == nil {
			g = &group{key: sampleKey(t), phase: uint64(len(s.groups))}
			s.groups[t.Key()] = g
		}
		g.seen = s.number
		if g.control == nil {
			g.name = t.Group // the agent knows it as soon as it knows the task
		}
		if t.Group == "" || l.cfg.Subtree == nil || g.gone {
			continue
		}
		s.open(l, g, t, pressure && t.Class > plimsoll.ClassBestEffort)
	}
	for key, g := range s.groups {
		if g.seen != s.number {
			s.closeGroup(l, g)
			delete(s.groups, key)
			delete(s.evicting, key)
		}
	}
}

// open opens a closed group, and reads it in its turn.
func (s *loopState) open(l *Loop, g *group, t *Task, pressure bool) {
	if g.control != nil && g.pressure != pressure {
		s.closeGroup(l, g)
	}
	if g.control == nil && s.sampler.Len() >= s.maxGroups {
		l.reportGroup(g, t.Key(), TroubleUnwatched, errTooManyFiles)
		return
	}
	if g.control == nil {
		if err := g.open(l.cfg.Subtree, s.sampler, pressure); err != nil {
			if g.missing = errors.Is(err, cgroup.ErrGone); !g.missing {
				l.reportGroup(g, t.Key(), TroubleOpen, err)
			}
			return
		}
		g.missing, g.readAt = false, 0
	}
	if g.thawPending {
		if err := g.thaw(); err != nil {
			s.groupError(l, g, t.Key(), TroubleThaw, err)
			return
		}
	}
	if g.readAt != 0 && (s.number+g.phase)%rereadSamples != 0 {
		return
	}
	if err := g.read(s.number); err != nil {
		s.groupError(l, g, t.Key(), TroubleRead, err)
		return
	}
	if !g.adopted {
		g.adopted = true
		s.reconcile(l, g, t)
	}
	if t.Class >= plimsoll.ClassGuaranteed && !s.ledgerHolds(t.Key(), g.name) {
		if err := g.setBurst(); err != nil && !errors.Is(err, cgroup.ErrGone) {
			l.deps.Events.Trouble(Trouble{Kind: TroubleBurst, Task: t.ID, Attempt: t.Attempt, Err: err})
		}
	}
}

func (s *loopState) ledgerHolds(k qos.Key, group string) bool {
	_, throttled := s.ledger.Original(k, group)
	return throttled
}

// Bounds on open files. A group needs up to filesV1 or filesV2 for its directories and counters.
// The rest of an agent keeps filesLeft, or a quarter of all files if that is less.
const (
	filesV1   = 10
	filesV2   = 6
	filesLeft = 256
)

var errTooManyFiles = errors.New(
	"there would be too few open files left for the agent; raise its limit of open files (RLIMIT_NOFILE)",
)

// maxGroups returns the largest number of groups that may be open with a limit of open files.
func maxGroups(limit uint64, v2 bool) int {
	if limit > math.MaxInt32 {
		return math.MaxInt
	}
	files, each := int(limit), filesV1
	if v2 {
		each = filesV2
	}
	return (files - min(filesLeft, files/4)) / each
}

// openFiles returns the limit of open files of this process.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // no known limit
	}
	return limit.Cur
}

// reconcile gives back changes to a group of which there is no record. They are by an agent that
// was killed, or by an earlier version. Only groups that may be older than this loop can have such.
func (s *loopState) reconcile(l *Loop, g *group, t *Task) {
	if !s.first && (t.Started == 0 || t.Started >= s.startedAt) {
		return
	}
	key := t.Key()
	if g.frozen && s.ledger.FrozenUntil(key) == 0 {
		step := &qos.Step{
			Verb: qos.Thaw, Task: t.ID, Attempt: t.Attempt, Reason: "it was frozen without a record",
		}
		s.finish(l, step, g.thaw())
	}
	found := g.describe(t)
	before := len(s.ledger.Held())
	s.ledger.Adopt(key, &found, specQuotaOf(t), specShares(t.Class, t.Resources, s.v2, found.Shares))
	if len(s.ledger.Held()) != before {
		s.dirty = true
		l.deps.Events.Adopted(
			Adopted{
				Task: t.ID, Attempt: t.Attempt, Quota: g.quota.String(), Shares: g.weight.Shares, Idle: g.weight.Idle,
			},
		)
	}
}

func specQuotaOf(t *Task) int64 {
	if quota := specQuota(t.Resources); quota > 0 {
		return quota
	}
	return qos.Unlimited
}

// groupError handles an error of a group. A group that is gone is no fault.
func (s *loopState) groupError(l *Loop, g *group, key qos.Key, what TroubleKind, err error) {
	if errors.Is(err, cgroup.ErrGone) {
		g.gone = true
		s.closeGroup(l, g)
		return
	}
	l.reportGroup(g, key, what, err)
}

func (s *loopState) closeGroup(l *Loop, g *group) {
	if err := g.close(s.sampler); err != nil {
		l.deps.Events.Trouble(Trouble{Kind: TroubleClose, Group: g.name, Err: err})
	}
}

// reportGroup reports an error of a group once and not at each sample. One cause, such as too many
// open files, often concerns a thousand groups.
func (l *Loop) reportGroup(g *group, key qos.Key, what TroubleKind, err error) {
	if g.trouble == err.Error() {
		return
	}
	g.trouble = err.Error()
	l.deps.Events.Trouble(Trouble{Kind: what, Task: key.Task, Attempt: key.Attempt, Err: err})
}
