package plimsoll_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
)

// IsZero decides whether constraints, preferences and facts are written, so it must examine each
// of their fields.
func TestIsZeroLooksAtEveryField(t *testing.T) {
	everyField(t, func(c *plimsoll.Constraints) bool { return c.IsZero() })
	everyField(t, func(p *plimsoll.Preferences) bool { return p.IsZero() })
	everyField(t, func(f *plimsoll.NodeFacts) bool { return f.IsZero() })
}

func everyField[X any](t *testing.T, isZero func(*X) bool) {
	t.Helper()
	var full X
	fill.Fill(&full, fill.Options{})
	if !isZero(new(X)) {
		t.Errorf("the zero %T is not zero", full)
	}
	for i := range reflect.TypeFor[X]().NumField() {
		var x X
		reflect.ValueOf(&x).Elem().Field(i).Set(reflect.ValueOf(&full).Elem().Field(i))
		if isZero(&x) {
			t.Errorf("%T with %s set is zero; add the field to IsZero", x, reflect.TypeFor[X]().Field(i).Name)
		}
	}
}

// A registration with equal facts changes nothing, so a field that Equal forgot would keep its old
// value for ever.
func TestEqualLooksAtEveryFact(t *testing.T) {
	var same plimsoll.NodeFacts
	fill.Fill(&same, fill.Options{})
	ignored := fill.Ignored(fill.Options{}, func(f *plimsoll.NodeFacts) string { return fmt.Sprint(f.Equal(&same)) })
	if len(ignored) > 0 {
		t.Errorf("NodeFacts.Equal does not look at %v; add them in constraints.go", ignored)
	}
}

// A state that the sums forget would be missing in every list of jobs.
func TestSumsCountEveryState(t *testing.T) {
	var c, none plimsoll.TaskCounts
	fill.Fill(&c, fill.Options{})
	for _, sum := range []plimsoll.TaskCounts{none.Plus(c), c.Plus(none)} {
		for _, d := range fill.Differences(&c, &sum) {
			t.Errorf("TaskCounts.Plus forgets %s; add it in job.go", d.Field)
		}
	}
	ignored := fill.Ignored(fill.Options{}, func(c *plimsoll.TaskCounts) string { return fmt.Sprint(c.Total()) })
	if len(ignored) > 0 {
		t.Errorf("TaskCounts.Total forgets %v; add them in job.go", ignored)
	}
}

// The line that describes an event of a node's agent holds every field, except those that the
// event has beside its message.
func TestTextOfAnEventTellsEveryField(t *testing.T) {
	beside := map[string]string{
		"At": "the event's time", "Task": "the event's object", "Attempt": "added where the event is made",
	}
	for _, field := range fill.Ignored(fill.Options{}, func(e *plimsoll.QOSEvent) string { return e.Text() }) {
		if beside[field] == "" {
			t.Errorf("QOSEvent.Text does not tell %s; add it in report.go", field)
		}
	}
}
