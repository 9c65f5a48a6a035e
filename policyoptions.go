package plimsoll

import "time"

// QOSOptions say how a node plans. A field that is zero has the node's default. Of several NodeQOS
// that select a node and give the same option, the one whose name comes first counts.
type QOSOptions struct {
	Excess  int32         // how far below its line a metric is brought, in percent of the gap; default 0
	Overdue time.Duration // after its grace, an evicted task that is still there does not count any more; default 30s
	Stale   time.Duration // a metric that is missing for so long is acted on as its rule's Hold says; default 5s
	Backoff time.Duration // a task is left alone after an action on it failed; doubles up to 32 times; default 5s
	Settle  time.Duration // wait of a task that was throttled again soon after it got something back; default 10s
	Lag     time.Duration // time until an action shows in the measured figures; default 500ms
}

// MaxQOSOption bounds the durations of QOSOptions.
const MaxQOSOption = time.Hour

// MinStale keeps a sample from being too old before it is planned with.
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
