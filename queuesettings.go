package plimsoll

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The properties of a queue that have a meaning. The first group is YuniKorn's, the second is
// Plimsoll's own.
const (
	PropertySort                = "application.sort.policy"
	PropertySortPriority        = "application.sort.priority"
	PropertyPriorityPolicy      = "priority.policy"
	PropertyPriorityOffset      = "priority.offset"
	PropertyPreemptionPolicy    = "preemption.policy"
	PropertyPreemptionDelay     = "preemption.delay"
	PropertyQuotaPreemption     = "quota.preemption.delay"
	PropertyUnschedBackoff      = "application.unschedasks.backoff"
	PropertyUnschedBackoffDelay = "application.unschedasks.backoff.delay"

	PropertyOrder     = "order"
	PropertyOrderHold = "order.hold"
	PropertyHalfLife  = "fairness.halflife"
)

// Defaults of QueueSettings, and the bounds of its own durations.
const (
	DefaultOrderHold       = 10 * time.Minute
	DefaultPreemptionDelay = 30 * time.Second

	maxOrderHold = 365 * 24 * time.Hour
	minHalfLife  = time.Minute
	maxHalfLife  = 365 * 24 * time.Hour
)

// QueueSettings are the meaning of a queue's properties.
type QueueSettings struct {
	// Fair orders the jobs of a leaf by their share, otherwise by their oldest request.
	Fair bool
	// PrioritySort puts priority before share and age. Otherwise it only decides what these leave
	// equal.
	PrioritySort bool
	// PriorityFence hides the priorities of a queue's jobs from the queue above, which sees
	// PriorityOffset alone.
	PriorityFence  bool
	PriorityOffset int32 // added to the highest priority of a queue's jobs, as the queue above sees it

	// The settings of preemption have no effect yet. PreemptionFence: tasks inside the queue take
	// nothing from outside. PreemptionOff: tasks of the queue neither preempt nor are preempted.
	PreemptionFence, PreemptionOff bool
	PreemptionDelay                time.Duration
	QuotaPreemptionDelay           time.Duration // 0: a lowered maximum preempts nothing

	// Strict lets a job of a leaf that does not fit hold back those behind it that compete with it,
	// for at most Hold.
	Strict bool
	Hold   time.Duration
	// HalfLife is that of the past use which the shares of the queues directly below count; 0: they
	// count only what is used now.
	HalfLife time.Duration
}

// DefaultQueueSettings returns the settings of a queue without properties.
func DefaultQueueSettings() QueueSettings {
	return QueueSettings{PrioritySort: true, PreemptionDelay: DefaultPreemptionDelay, Hold: DefaultOrderHold}
}

// Settings returns the meaning of the properties that the queue itself states. See
// InheritProperties for those of the queues above.
func (c *QueueConfig) Settings() QueueSettings { return ParseQueueSettings(c.Properties) }

// InheritProperties returns the properties of a queue: those it states, and for each that it does
// not state, that of the queue above. As in YuniKorn, priority.policy and priority.offset are not
// inherited, and of preemption.policy only "disabled" is. above are the inherited properties of the
// queue above.
func InheritProperties(above, own map[string]string) map[string]string {
	out := make(map[string]string, len(above)+len(own))
	for _, p := range SortedPairs(above) {
		switch p[0] {
		case PropertyPriorityPolicy, PropertyPriorityOffset:
		case PropertyPreemptionPolicy:
			if strings.EqualFold(p[1], "disabled") {
				out[p[0]] = p[1]
			}
		default:
			out[p[0]] = p[1]
		}
	}
	maps.Copy(out, own)
	return out
}

// ParseQueueSettings returns the meaning of properties. A value that cannot be read leaves the
// default, as in YuniKorn.
func ParseQueueSettings(properties map[string]string) QueueSettings {
	s := DefaultQueueSettings()
	for i := range queueProperties {
		if text, stated := properties[queueProperties[i].name]; stated {
			queueProperties[i].set(&s, text)
		}
	}
	return s
}

// queueProperty is a property with the values that it may have, and its reader. The reader changes
// nothing and reports false if it cannot read the value.
type queueProperty struct {
	name     string
	possible string
	effect   bool // it has an effect already
	own      bool // Plimsoll's own: a wrong value is refused, not ignored
	set      func(s *QueueSettings, text string) bool
}

var queueProperties = [...]queueProperty{
	{PropertySort, "fifo or fair", true, false, setSort},
	{PropertySortPriority, "enabled or disabled", true, false, func(s *QueueSettings, text string) bool {
		return setWord(text, map[string]func(){
			"enabled": func() { s.PrioritySort = true }, "disabled": func() { s.PrioritySort = false },
		})
	}},
	{PropertyPriorityPolicy, "default or fence", true, false, func(s *QueueSettings, text string) bool {
		return setWord(text, map[string]func(){
			"": func() {}, "default": func() {}, "fence": func() { s.PriorityFence = true },
		})
	}},
	{PropertyPriorityOffset, "a whole number of 32 bits", true, false, func(s *QueueSettings, text string) bool {
		n, err := strconv.ParseInt(text, 10, 32)
		if err == nil {
			s.PriorityOffset = int32(n)
		}
		return err == nil
	}},
	{
		PropertyPreemptionPolicy, "default, fence or disabled", false, false,
		func(s *QueueSettings, text string) bool {
			return setWord(text, map[string]func(){
				"": func() {}, "default": func() {},
				"fence": func() { s.PreemptionFence = true }, "disabled": func() { s.PreemptionOff = true },
			})
		},
	},
	{
		PropertyPreemptionDelay, "a duration above zero, such as 30s", false, false,
		func(s *QueueSettings, text string) bool { return setTime(&s.PreemptionDelay, text, 1, 1<<63-1) },
	},
	{
		PropertyQuotaPreemption, "a duration above zero, such as 1h", false, false,
		func(s *QueueSettings, text string) bool { return setTime(&s.QuotaPreemptionDelay, text, 1, 1<<63-1) },
	},
	{PropertyUnschedBackoff, "a whole number", false, false, func(_ *QueueSettings, text string) bool {
		_, err := strconv.ParseUint(text, 10, 64)
		return err == nil
	}},
	{
		PropertyUnschedBackoffDelay, "a duration above zero, such as 30s", false, false,
		func(_ *QueueSettings, text string) bool {
			var unused time.Duration
			return setTime(&unused, text, 1, 1<<63-1)
		},
	},
	{PropertyOrder, "strict or default", true, true, func(s *QueueSettings, text string) bool {
		return setWord(text, map[string]func(){
			"strict": func() { s.Strict = true }, "default": func() { s.Strict = false },
		})
	}},
	{PropertyOrderHold, "a duration from 1s to 8760h, such as 10m", true, true, setHold},
	{PropertyHalfLife, "0 for none, or a duration from 1m to 8760h, such as 24h", true, true, setHalfLife},
}

func setHalfLife(s *QueueSettings, text string) bool {
	if t, err := time.ParseDuration(text); err == nil && t == 0 {
		s.HalfLife = 0
		return true
	}
	return setTime(&s.HalfLife, text, minHalfLife, maxHalfLife)
}

func setHold(s *QueueSettings, text string) bool {
	return setTime(&s.Hold, text, time.Second, maxOrderHold)
}

// setSort reads application.sort.policy. As in YuniKorn, the words are in lower case, and
// stateaware, a former policy, is fifo.
func setSort(s *QueueSettings, text string) bool {
	switch text {
	case "", "fifo", "stateaware":
		s.Fair = false
	case "fair":
		s.Fair = true
	default:
		return false
	}
	return true
}

// setWord reads a word of any case.
func setWord(text string, words map[string]func()) bool {
	set := words[strings.ToLower(text)]
	if set != nil {
		set()
	}
	return set != nil
}

func setTime(into *time.Duration, text string, least, most time.Duration) bool {
	t, err := time.ParseDuration(text)
	if err != nil || t < least || t > most {
		return false
	}
	*into = t
	return true
}

// QueueProperties returns the names of the properties that have a meaning, in the order of the
// documentation.
func QueueProperties() []string {
	names := make([]string, len(queueProperties))
	for i := range queueProperties {
		names[i] = queueProperties[i].name
	}
	return names
}

// PropertyNote says of a property as a queue file states it that it has no effect, and why. It is
// empty for a property that has one.
func PropertyNote(name, text string) string {
	i := slices.IndexFunc(queueProperties[:], func(p queueProperty) bool { return p.name == name })
	if i < 0 {
		note := "is not known and has no effect"
		if near := Nearest(name, QueueProperties()); near != "" {
			note += "; did you mean " + strconv.Quote(near) + "?"
		}
		return note
	}
	p, s := &queueProperties[i], DefaultQueueSettings()
	switch {
	case !p.set(&s, text):
		return "is " + strconv.Quote(Shorten(text)) + ", which cannot be read: the default holds; write " + p.possible
	case !p.effect:
		return "is kept but has no effect yet"
	}
	return ""
}
