package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/plimsoll-dev/plimsoll"
)

// Quota is the processor time that the group may use in each period.
type Quota struct {
	Micros       int64 // negative: no limit
	PeriodMicros int64 // zero when set: the present period stays
}

// Unlimited tells whether the group has no quota.
func (q Quota) Unlimited() bool { return q.Micros < 0 }

// String returns the quota, such as "50000us of 100000us".
func (q Quota) String() string {
	switch {
	case q.Unlimited():
		return "unlimited"
	case q.PeriodMicros == 0:
		return fmt.Sprintf("%dus", q.Micros)
	}
	return fmt.Sprintf("%dus of %dus", q.Micros, q.PeriodMicros)
}

// Bounds of the kernel.
const (
	MinQuotaMicros  = minQuotaMicros
	MinPeriodMicros = 1_000
	MaxPeriodMicros = 1_000_000
	MinShares       = 2
	MaxShares       = 262_144
)

// Quota reads the group's own quota. A parent group may have a smaller one.
func (c *Control) Quota() (Quota, error) {
	q, err := c.quota()
	if err != nil {
		return q, fmt.Errorf("read the cpu quota of %s: %w", c.name, err)
	}
	return q, nil
}

func (c *Control) quota() (q Quota, err error) {
	m, v2, err := c.mountFor(cpuController)
	if err != nil {
		return q, err
	}
	if v2 {
		return c.quotaV2(m, "cpu.max")
	}
	return c.quotaV1(m, "")
}

func (c *Control) quotaV2(m int, file string) (Quota, error) {
	var buf [64]byte
	data, err := c.read(m, file, buf[:])
	if err != nil {
		return Quota{}, err
	}
	q, ok := parseMax(data)
	if !ok {
		return Quota{}, fmt.Errorf("%s says %q", file, data)
	}
	return q, nil
}

// parseMax reads "max 100000" or "50000 100000".
func parseMax(b []byte) (q Quota, ok bool) {
	b = bytes.TrimRight(b, "\n")
	if rest, unlimited := bytes.CutPrefix(b, []byte("max")); unlimited {
		q.Micros, b = -1, rest
	} else if q.Micros, b, ok = ParseFirst(b); !ok {
		return Quota{}, false
	}
	if len(b) == 0 || b[0] != ' ' {
		return Quota{}, false
	}
	q.PeriodMicros, b, ok = ParseFirst(b[1:])
	return q, ok && len(b) == 0
}

// quotaV1 reads the quota in dir, which is "" or "../".
func (c *Control) quotaV1(m int, dir string) (q Quota, err error) {
	var buf [64]byte
	data, err := c.read(m, dir+"cpu.cfs_quota_us", buf[:])
	if err != nil {
		return q, err
	}
	var ok bool
	if q.Micros, ok = signed(data); !ok {
		return q, fmt.Errorf("cpu.cfs_quota_us says %q", data)
	}
	q.PeriodMicros, err = c.readNumber(m, dir+"cpu.cfs_period_us")
	return q, err
}

// SetQuota limits the group; the new quota holds within one period.
//
// A quota must be at least MinQuotaMicros, the group's burst and the quota of each group inside it.
// With v1 it must also fit in the parent's quota. A refused quota changes nothing.
func (c *Control) SetQuota(q Quota) error {
	const setting = "cpu quota"
	if q.Micros >= 0 && q.Micros < MinQuotaMicros {
		return plimsoll.Invalid(
			setting, "%dus is less than the %dus that the kernel takes; to stop the group freeze it", q.Micros,
			MinQuotaMicros,
		)
	}
	if p := q.PeriodMicros; p != 0 && (p < MinPeriodMicros || p > MaxPeriodMicros) {
		return plimsoll.Invalid(
			setting, "a period of %dus is not between %dus and %dus", p, MinPeriodMicros, MaxPeriodMicros,
		)
	}
	m, v2, err := c.mountFor(cpuController)
	if err != nil {
		return fmt.Errorf("set the %s of %s: %w", setting, c.name, err)
	}
	if v2 {
		err = c.setQuotaV2(m, q)
	} else {
		err = c.setQuotaV1(m, q)
	}
	if err == nil {
		return nil
	}
	return c.refused(err, setting, q.String(), c.acceptedQuota(m, v2))
}

func (c *Control) setQuotaV2(m int, q Quota) error {
	value := "max"
	if !q.Unlimited() {
		value = strconv.FormatInt(q.Micros, 10)
	}
	if q.PeriodMicros != 0 {
		value += " " + strconv.FormatInt(q.PeriodMicros, 10)
	}
	return c.write(m, "cpu.max", value)
}

// setQuotaV1 writes two files, first the one that lowers the share. So the share never exceeds the
// larger of the old and the new one, nor the parent's. If the second write is refused, the first is
// undone.
func (c *Control) setQuotaV1(m int, q Quota) error {
	const quotaFile, periodFile = "cpu.cfs_quota_us", "cpu.cfs_period_us"
	quota := func(micros int64) error { return c.write(m, quotaFile, strconv.FormatInt(max(micros, -1), 10)) }
	period := func(micros int64) error { return c.write(m, periodFile, strconv.FormatInt(micros, 10)) }
	old, err := c.quotaV1(m, "")
	if err != nil {
		return err
	}
	switch {
	case q.PeriodMicros == 0 || q.PeriodMicros == old.PeriodMicros:
		return quota(q.Micros)
	case q.PeriodMicros > old.PeriodMicros && !q.Unlimited():
		if err := period(q.PeriodMicros); err != nil {
			return err
		}
		if err := quota(q.Micros); err != nil {
			return errors.Join(err, period(old.PeriodMicros))
		}
	default:
		if err := quota(q.Micros); err != nil {
			return err
		}
		if err := period(q.PeriodMicros); err != nil {
			return errors.Join(err, quota(old.Micros))
		}
	}
	return nil
}

// acceptedQuota describes the quotas that the kernel would accept now.
func (c *Control) acceptedQuota(m int, v2 bool) string {
	says := fmt.Sprintf("it takes at least %dus", MinQuotaMicros)
	if burst, err := c.Burst(); err == nil && burst > 0 {
		says += fmt.Sprintf(", not less than the burst of %dus", burst)
	}
	if v2 {
		return says
	}
	if parent, err := c.quotaV1(m, "../"); err == nil && !parent.Unlimited() {
		return says + fmt.Sprintf(", and with its period no more than the parent's %s", parent)
	}
	return says + ", and not less than groups inside of it have"
}

// Burst reads how much unused quota the group may use later.
func (c *Control) Burst() (micros int64, err error) {
	m, v2, err := c.mountFor(cpuController)
	if err == nil {
		micros, err = c.readNumber(m, burstFile(v2))
	}
	if err != nil {
		return 0, fmt.Errorf("read the cpu burst of %s: %w", c.name, err)
	}
	return micros, nil
}

func burstFile(v2 bool) string {
	if v2 {
		return "cpu.max.burst"
	}
	return "cpu.cfs_burst_us"
}

// SetBurst lets the group use unused quota later, up to micros and no more than the quota itself.
// Zero turns bursts off.
func (c *Control) SetBurst(micros int64) error {
	const setting = "cpu burst"
	if micros < 0 {
		return plimsoll.Invalid(setting, "%dus is negative; 0 is no burst", micros)
	}
	m, v2, err := c.mountFor(cpuController)
	if err != nil {
		return fmt.Errorf("set the %s of %s: %w", setting, c.name, err)
	}
	err = c.write(m, burstFile(v2), strconv.FormatInt(micros, 10))
	if err == nil {
		return nil
	}
	accepted := "it takes at most the quota"
	if q, err := c.quota(); err == nil {
		accepted += ", which is " + q.String()
	}
	return c.refused(err, setting, fmt.Sprintf("%dus", micros), accepted)
}

// Scheduling says how the group competes with others for processors.
type Scheduling struct {
	// Shares is the weight in the kernel's own unit of v1, between MinShares and MaxShares; 1024 is
	// the default. Shares is zero, and ignored, when Idle: the kernel forgets the weight of an idle
	// group.
	Shares int64
	// Idle is SCHED_IDLE for the whole group: it runs only when a processor would be idle.
	Idle bool
}

// Scheduling reads the present values, in the form that SetScheduling takes.
func (c *Control) Scheduling() (Scheduling, error) {
	s, err := c.scheduling()
	if err != nil {
		return s, fmt.Errorf("read the cpu weight of %s: %w", c.name, err)
	}
	return s, nil
}

func (c *Control) scheduling() (s Scheduling, err error) {
	m, v2, err := c.mountFor(cpuController)
	if err != nil {
		return s, err
	}
	idle, err := c.readNumber(m, "cpu.idle")
	if err != nil && !errors.Is(err, ErrUnsupported) { // before Linux 5.15 no group is idle
		return s, err
	}
	if idle != 0 {
		return Scheduling{Idle: true}, nil
	}
	if !v2 {
		s.Shares, err = c.readNumber(m, "cpu.shares")
		return s, err
	}
	weight, err := c.readNumber(m, "cpu.weight")
	s.Shares = sharesOf(weight)
	return s, err
}

// SetScheduling sets the weight, or makes the group idle. An idle group that gets a weight is no
// longer idle.
func (c *Control) SetScheduling(s Scheduling) error {
	const setting = "cpu weight"
	if !s.Idle && (s.Shares < MinShares || s.Shares > MaxShares) {
		return plimsoll.Invalid(setting, "%d shares are not between %d and %d", s.Shares, MinShares, MaxShares)
	}
	m, v2, err := c.mountFor(cpuController)
	if err != nil {
		return fmt.Errorf("set the %s of %s: %w", setting, c.name, err)
	}
	if s.Idle {
		return c.refused(c.write(m, "cpu.idle", "1"), setting, "idle", "cpu.idle takes 0 and 1")
	}
	if err := c.write(m, "cpu.idle", "0"); err != nil && !errors.Is(err, ErrUnsupported) {
		return c.refused(err, setting, "not idle", "cpu.idle takes 0 and 1")
	}
	if v2 {
		err = c.write(m, "cpu.weight", strconv.FormatInt(weightOf(s.Shares), 10))
	} else {
		err = c.write(m, "cpu.shares", strconv.FormatInt(s.Shares, 10))
	}
	return c.refused(
		err, setting, fmt.Sprintf("%d shares", s.Shares),
		"a group that is idle takes no weight; somebody else may have made it idle again",
	)
}

// weightOf returns the v2 weight of v1 shares. The mapping is linear, from 2 and 262144 shares to
// weights 1 and 10000, as in systemd and Kubernetes.
func weightOf(shares int64) int64 { return 1 + (shares-MinShares)*9999/(MaxShares-MinShares) }

// sharesOf returns the fewest shares of a weight. weightOf(sharesOf(w)) is w, so a value that was
// read can be written back.
func sharesOf(weight int64) int64 {
	return MinShares + ((weight-1)*(MaxShares-MinShares)+9998)/9999
}
