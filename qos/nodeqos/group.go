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

// rereadSamples is the number of samples after which a group's quota, weight and freezer are read
// again, of different groups each time. Changes by other programs are noticed by then. In between
// the loop's own writes count.
const rereadSamples = 8

// freezeTime is the time after which freezing a group counts as failed: processes in an
// uninterruptible sleep delay it.
const freezeTime = 100 * time.Millisecond

// group is the control group of one attempt, as far as it is known.
type group struct {
	key     string // key in the Sampler
	name    string
	control *cgroup.Control // nil: not opened yet, or gone
	gone    bool            // removed. Invariant: stays true, since a removed group never comes back
	missing bool            // absent when it was to be opened

	pressure bool // the Sampler samples its pressure
	noQuota  bool // the machine has no controller for quotas
	noIdle   bool // the kernel knows no idle groups, so the least weight stands for idle

	quota       cgroup.Quota
	weight      cgroup.Scheduling
	frozen      bool
	thawPending bool // freezing has failed, so it may still be frozen and must be thawed
	burst       bool // the burst was asked for

	readAt  uint64 // number of the sample at which quota, weight and frozen were read last; 0: never
	phase   uint64 // spreads the groups over rereadSamples
	seen    uint64 // number of the last sample at which its task was there
	adopted bool   // changes without a record have been looked for
	sampled *sample.Group
	stuckAt time.Time // time of the last report that it cannot be thawed
	trouble string    // the last error that was reported
}

func sampleKey(t *Task) string { return t.ID + "." + strconv.Itoa(int(t.Attempt)) }

// open opens the group's files. ErrGone: the group does not exist, or not yet.
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

// close closes the group's files.
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

// read reads the group's settings from the kernel. Where the machine lacks a controller the group
// counts as not limited, not idle and not frozen.
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

// setQuota writes a quota in the group's own period. The kernel refuses a quota below the burst, so
// the burst is removed first if need be.
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

// setWeight writes a weight. Before Linux 5.15 no group can be idle; there it gets the least
// weight.
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

// idle reports whether the group is idle, or has the least weight on a kernel without idle groups.
func (g *group) idle() bool { return g.weight.Idle || g.noIdle && g.weight.Shares <= cgroup.MinShares }

func (g *group) freeze(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	err := g.control.Freeze(ctx)
	g.frozen, g.thawPending = err == nil, err != nil
	return err
}

func (g *group) thaw() error {
	err := g.control.Thaw()
	if err == nil {
		g.frozen, g.thawPending = false, false
	}
	return err
}

// setBurst lets a protected group use the unused part of its quota later, up to the quota of one
// period, which is the kernel's maximum. A request that needs more than its share of one period is
// then not delayed if the period before had less to do. setBurst is tried once, and may fail.
func (g *group) setBurst() error {
	if g.burst || g.quota.Micros <= 0 {
		return nil
	}
	g.burst = true
	return g.control.SetBurst(g.quota.Micros)
}

// describe returns the group in the planner's form.
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
	if milli > qos.Core { // no machine has so many; the product must not overflow
		milli = qos.Core
	}
	return milli * (qos.Core / 1000)
}

// specQuota returns the quota of a task's specification, in nanocores; 0: none.
func specQuota(r plimsoll.Resources) int64 {
	return nanocores(r[plimsoll.CPU] + r[plimsoll.ExtCPU])
}

// defaultShares is the weight of a group without a request for processors.
const defaultShares = 1024

// defaultSharesV2 is the number of shares read back from a v2 group with the default weight, 100.
// weightGrain is the largest difference of two numbers of shares that are one weight there.
const (
	defaultSharesV2 = 2598
	weightGrain     = 27
)

// specShares returns the weight of a task's specification, as it would be read back; found is the
// weight read. Extended processors give no weight, nor does best effort without a processor
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

// nanocoresOf converts a quota to the nearest number of nanocores. microsOf is its exact inverse,
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

// errNoGroup is the error of a change to a task without a control group.
var errNoGroup = fmt.Errorf("the task has no control group here: %w", cgroup.ErrUnsupported)
