package plimsoll

import (
	"maps"
	"testing"
	"time"
)

// TestQueueSettings: properties are read as YuniKorn reads them; what cannot be read leaves the
// default.
func TestQueueSettings(t *testing.T) {
	usual := DefaultQueueSettings()
	for _, c := range []struct {
		properties map[string]string
		change     func(*QueueSettings)
	}{
		{nil, func(*QueueSettings) {}},
		{map[string]string{PropertySort: "fair"}, func(s *QueueSettings) { s.Fair = true }},
		{map[string]string{PropertySort: "stateaware"}, func(*QueueSettings) {}},
		{map[string]string{PropertySort: "lifo", PropertySortPriority: "maybe"}, func(*QueueSettings) {}},
		{map[string]string{PropertySortPriority: "disabled"}, func(s *QueueSettings) { s.PrioritySort = false }},
		{map[string]string{PropertyPriorityPolicy: "fence"}, func(s *QueueSettings) { s.PriorityFence = true }},
		{map[string]string{PropertyPriorityOffset: "-5"}, func(s *QueueSettings) { s.PriorityOffset = -5 }},
		{map[string]string{PropertyPriorityOffset: "2147483648"}, func(*QueueSettings) {}},
		{map[string]string{PropertyPreemptionPolicy: "disabled"}, func(s *QueueSettings) { s.PreemptionOff = true }},
		{map[string]string{PropertyPreemptionDelay: "10s"}, func(s *QueueSettings) {
			s.PreemptionDelay = 10 * time.Second
		}},
		{map[string]string{PropertyPreemptionDelay: "soon", PropertyQuotaPreemption: "1h"}, func(s *QueueSettings) {
			s.QuotaPreemptionDelay = time.Hour
		}},
		{map[string]string{PropertyOrder: "strict", PropertyOrderHold: "5m"}, func(s *QueueSettings) {
			s.Strict, s.Hold = true, 5*time.Minute
		}},
		{map[string]string{PropertyHalfLife: "24h"}, func(s *QueueSettings) { s.HalfLife = 24 * time.Hour }},
		{map[string]string{PropertySort: "Fair", PropertyPriorityPolicy: "Fence"}, func(s *QueueSettings) {
			s.PriorityFence = true
		}},
	} {
		want := usual
		c.change(&want)
		if got := (&QueueConfig{Properties: c.properties}).Settings(); got != want {
			t.Errorf("%v: got %+v, want %+v", c.properties, got, want)
		}
	}
}

// TestInheritProperties: a queue inherits all but its priority's policy and offset, and of
// preemption only that it is disabled.
func TestInheritProperties(t *testing.T) {
	above := map[string]string{
		PropertySort: "fair", PropertyPriorityPolicy: "fence", PropertyPriorityOffset: "7",
		PropertyPreemptionPolicy: "fence", "some.thing": "else",
	}
	got := InheritProperties(above, map[string]string{PropertyOrder: "strict"})
	want := map[string]string{PropertySort: "fair", "some.thing": "else", PropertyOrder: "strict"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = InheritProperties(map[string]string{PropertyPreemptionPolicy: "disabled", PropertySort: "fair"},
		map[string]string{PropertySort: "fifo"})
	want = map[string]string{PropertyPreemptionPolicy: "disabled", PropertySort: "fifo"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPropertyNote: a property without an effect is said to have none.
func TestPropertyNote(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{PropertySort, "fair", ""},
		{PropertySort, "lifo", `is "lifo", which cannot be read: the default holds; write fifo or fair`},
		{PropertyPreemptionDelay, "10s", "is kept but has no effect yet"},
		{"application.sort.polcy", "fair", `is not known and has no effect; did you mean "application.sort.policy"?`},
		{"some.thing", "else", "is not known and has no effect"},
	} {
		if got := PropertyNote(c.name, c.text); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.name, c.text, got, c.want)
		}
	}
}
