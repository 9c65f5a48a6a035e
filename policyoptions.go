package plimsoll

import "time"

// QOSOptions configure how a node plans. A zero field means the node's default. If several NodeQOS
// that select a node set the same option, the first by name counts.
type QOSOptions struct {
	// Excess is how far below its line a metric is brought, in percent of the gap. Default: 0.
	Excess int32
	// Overdue is the time after its grace from which an evicted task that is still there no longer
	// counts. Default: 30s.
	Overdue time.Duration
	// Stale is the time for which a metric may be missing. After that the rule's Hold decides.
	// Default: 5s.
	Stale time.Duration
	// Backoff is how long a task is left alone after an action on it failed. It doubles up to 32
	// times. Default: 5s.
	Backoff time.Duration
	// Settle is how long a task gets nothing back if it had to be throttled again soon after it
	// got something back. Default: 10s.
	Settle time.Duration
	// Lag is the time until an action shows in the measured figures. Default: 500ms.
	Lag time.Duration
}

// MaxQOSOption bounds the durations of QOSOptions.
const MaxQOSOption = time.Hour

// MinStale is the least Stale. With less, every sample would be too old before it is planned with.
const MinStale = 100 * time.Millisecond

func (o *QOSOptions) validate(field string) error {
	if o.Excess < 0 || o.Excess > 100 {
		return Invalid(field+".excess", "is %d; give a percentage of the gap, 0 to 100", o.Excess)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"overdue", o.Overdue}, {"stale", o.Stale}, {"backoff", o.Backoff}, {"settle", o.Settle}, {"lag", o.Lag}} {
		if d.value < 0 || d.value > MaxQOSOption {
			return Invalid(field+"."+d.name, "is %v; give a duration up to %v, or leave it out for the default",
				d.value, MaxQOSOption)
		}
	}
	if o.Stale != 0 && o.Stale < MinStale {
		return Invalid(field+".stale", "is %v; give %v or more, or every sample is too old", o.Stale, MinStale)
	}
	return nil
}
