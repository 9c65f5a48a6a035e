package nodeqos

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/cgroup"
	"github.com/plimsoll-dev/plimsoll/internal/sample"
	"github.com/plimsoll-dev/plimsoll/qos"
)

// rereadSamples is after how many samples a group's quota, weight and freezer are read again, of
// different groups each time: what somebody else wrote is noticed by then. In between what we wrote
// counts.
const rereadSamples = 8

// freezeTime is how long a group may take to stand still before that counts as failed: processes in
// an uninterruptible sleep hold it up.
const freezeTime = 100 * time.Millisecond

// group is the control group of one attempt, as far as it is known.
type group struct {
	key     string // the Sampler's
	name    string
	control *cgroup.Control // nil: it could not be opened yet, or is gone
	gone    bool            // it was removed; it never comes back
	missing bool            // it was not there when it was to be opened

	pressure bool // its pressure is sampled
	noQuota  bool // the machine has no controller for it
	noIdle   bool // the kernel knows no idle groups: the least weight stands for it

	quota  cgroup.Quota
	weight cgroup.Scheduling
	frozen bool
	owed   bool // freezing it has failed: whether it runs again is not known, so it is thawed once more
	burst  bool // it was asked for

	readAt  uint64 // number of the sample at which the above was read last
	phase   uint64 // spreads the groups over rereadSamples
	seen    uint64 // number of the sample at which its task was there last
	adopted bool   // what was taken from it without a record has been looked for
	sampled *sample.Group
	stuckAt time.Time // when it was told last that it cannot be thawed
	trouble string    // what was complained of last
}

func sampleKey(t *Task) string { return t.ID + "." + strconv.Itoa(int(t.Attempt)) }

// open opens the group's files. ErrGone: there is no such group, or not yet.
func (g *group) open(s *cgroup.Subtree, sampler *sample.Sampler, pressure bool) error {
	handle, err := s.Open(g.name)
	if err != nil {
		return err
	}
	control, err := handle.Control()
	if err != nil {
		return err
	}
	if err := sampler.TrackWith(g.key, handle, sample.TrackOptions{Pressure: pressure}); err != nil {
		return errors.Join(err, control.Close())
	}
	g.control, g.pressure = control, pressure
	return nil
}

// close gives back what open took.
func (g *group) close(sampler *sample.Sampler) error {
	g.sampled = nil
	if g.control == nil {
		return nil
	}
	sampler.Drop(g.key)
	err := g.control.Close()
	g.control = nil
	return err
}

// read reads what the kernel has. What the machine cannot do counts as not limited, not idle and
// not frozen.
func (g *group) read(sequence uint64) error {
	g.readAt = sequence
	quota, err := g.control.Quota()
	if g.noQuota = errors.Is(err, cgroup.ErrUnsupported); g.noQuota {
		quota, err = cgroup.Quota{Micros: -1}, nil
	}
	if err != nil {
		return err
	}
	g.quota = quota
	weight, err := g.control.Scheduling()
	if err != nil && !errors.Is(err, cgroup.ErrUnsupported) {
		return err
	}
	g.weight = weight
	frozen, err := g.control.Frozen()
	if err != nil && !errors.Is(err, cgroup.ErrUnsupported) {
		return err
	}
	g.frozen = frozen
	return nil
}

// setQuota writes a quota in the group's own period. The kernel takes no quota below the burst, so
// if need be the burst goes first.
func (g *group) setQuota(nanocores int64) error {
	q := cgroup.Quota{Micros: microsOf(nanocores, g.quota.PeriodMicros)}
	err := g.control.SetQuota(q)
	if plimsoll.CodeOf(err) == plimsoll.CodeInvalid && !q.Unlimited() {
		if burst, readErr := g.control.Burst(); readErr == nil && burst > q.Micros {
			g.burst = false
			if err = g.control.SetBurst(0); err == nil {
				err = g.control.SetQuota(q)
			}
		}
	}
	if err == nil {
		g.quota.Micros = q.Micros
	}
	return err
}

// setWeight writes a weight. Before Linux 5.15 no group can be idle; there it gets the least weight
// that there is.
func (g *group) setWeight(w qos.Weight) error {
	s := cgroup.Scheduling{Shares: w.Shares, Idle: w.Idle}
	if w.Idle {
		s.Shares = 0
	} else if s.Shares == 0 {
		s.Shares = defaultShares
	}
	err := g.control.SetScheduling(s)
	if s.Idle && errors.Is(err, cgroup.ErrUnsupported) {
		g.noIdle, s = true, cgroup.Scheduling{Shares: cgroup.MinShares}
		err = g.control.SetScheduling(s)
	}
	if err == nil {
		g.weight = s
	}
	return err
}

// idle reports whether the group runs only when nothing else wants to, as far as the kernel knows
// such.
func (g *group) idle() bool { return g.weight.Idle || g.noIdle && g.weight.Shares <= cgroup.MinShares }

func (g *group) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	err := g.control.Freeze(ctx)
	g.frozen, g.owed = err == nil, err != nil
	return err
}

func (g *group) thaw() error {
	err := g.control.Thaw()
	if err == nil {
		g.frozen, g.owed = false, false
	}
	return err
}

// setBurst lets a protected group use later what it left of its quota: as much as the quota of one
// period, which is the most that the kernel takes. A request that needs more than its share of one
// period is then not held up if the period before had less to do. It is done once, and best effort.
func (g *group) setBurst() error {
	if g.burst || g.quota.Micros <= 0 {
		return nil
	}
	g.burst = true
	return g.control.SetBurst(g.quota.Micros)
}

// describe returns the group as the planner sees it.
func (g *group) describe(t *Task) qos.Group {
	out := qos.Group{
		Quota: nanocoresOf(g.quota), Period: g.quota.PeriodMicros * int64(time.Microsecond),
		Limit: specQuota(t.Resources), Ext: nanocores(t.Resources[plimsoll.ExtCPU]),
		Shares: g.weight.Shares, Idle: g.idle(), Frozen: g.frozen,
	}
	if !g.noQuota {
		out.Name = g.name
	}
	if t.Class >= plimsoll.ClassGuaranteed {
		out.Request = max(out.Limit, 0)
	}
	if g.sampled != nil && g.sampled.CPUKnown {
		out.CPU = g.sampled.CPU
	}
	return out
}

// nanocores converts milli-cores.
func nanocores(milli int64) int64 {
	if milli > qos.Core { // no machine has that; it must not overflow
		milli = qos.Core
	}
	return milli * (qos.Core / 1000)
}

// specQuota is the quota that a task's specification gives it, in nanocores; 0: none.
func specQuota(r plimsoll.Resources) int64 {
	return nanocores(r[plimsoll.CPU] + r[plimsoll.ExtCPU])
}

// defaultShares is the weight of a group for which no processor was asked.
const defaultShares = 1024

// Shares of a v2 group whose weight nobody set (100), as they are read back, and the most by which
// two numbers of shares differ that are one weight there.
const (
	defaultSharesV2 = 2598
	weightGrain     = 27
)

// specShares is the weight that a task's specification gives it, as it is read back: found is what
// was read. What is lent gives no weight, nor does best effort without a processor
// (internal/executor).
func specShares(class plimsoll.Class, r plimsoll.Resources, v2 bool, found int64) int64 {
	milli := min(r[plimsoll.CPU], cgroup.MaxShares)
	lent := r[plimsoll.ExtCPU] > 0 || milli == 0 && class == plimsoll.ClassBestEffort
	if milli == 0 && !lent && v2 {
		return defaultSharesV2
	}
	shares := int64(defaultShares)
	if milli > 0 || lent {
		shares = min(max(milli*1024/1000, cgroup.MinShares), cgroup.MaxShares)
	}
	if v2 && found < shares && shares-found < weightGrain {
		return found
	}
	return shares
}

// nanocoresOf converts a quota to the nearest number of nanocores; microsOf is its exact inverse,
// since a microsecond of even the longest period is a thousand nanocores.
func nanocoresOf(q cgroup.Quota) int64 {
	if q.Unlimited() || q.PeriodMicros <= 0 {
		return qos.Unlimited
	}
	return scale(q.Micros, qos.Core, q.PeriodMicros)
}

func microsOf(nanocores, period int64) int64 {
	if nanocores <= 0 {
		return -1
	}
	if period <= 0 {
		period = qos.DefaultPeriod / int64(time.Microsecond)
	}
	return max(scale(nanocores, period, qos.Core), cgroup.MinQuotaMicros)
}

// scale returns a*b/c, rounded, for numbers that are not negative.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c/2), 0)
	hi += carry
	if hi >= uint64(c) {
		return 1<<63 - 1
	}
	n, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(n, 1<<63-1))
}

// errNoGroup says that a task has no control group that could be changed.
var errNoGroup = fmt.Errorf("the task has no control group here: %w", cgroup.ErrUnsupported)
