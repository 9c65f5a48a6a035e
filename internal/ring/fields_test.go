package ring_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/fill"
	"github.com/plimsoll-dev/plimsoll/internal/ring"
)

// A field of an event that is not packed would be lost in the store and at every gateway.
func TestEveryFieldOfAnEventIsPacked(t *testing.T) {
	var in [2]plimsoll.Event
	for i := range in {
		fill.Fill(&in[i], fill.Options{})
	}
	in[1].Time++ // the record is shorter for an event that is like the one before
	var e ring.Encoder
	e.Append(&in[0])
	e.Append(&in[1])
	n := 0
	for out, err := range ring.Decode(e.Finish(nil)) {
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range fill.Differences(&in[n], &out) {
			t.Errorf("Event.%s is lost in a chunk (%s). It belongs into: Encoder.Append and isBlank in "+
				"encode.go; decoder.next in decode.go",
				d.Path, d)
		}
		n++
	}
	if n != len(in) {
		t.Errorf("%d of %d events came out", n, len(in))
	}
}

// An event with only one field set is kept.
func TestEveryFieldMakesAnEventWorthKeeping(t *testing.T) {
	var full plimsoll.Event
	fill.Fill(&full, fill.Options{})
	for _, d := range fill.Differences(&plimsoll.Event{}, &full) {
		o := fill.Options{
			Leave: []string{
				".Type", ".Change", ".Detail", ".Time", ".Object", ".Reference", ".Resources", ".Message", ".Head",
			},
		}
		for i, rule := range o.Leave {
			if rule == "."+d.Path {
				o.Leave = append(o.Leave[:i:i], o.Leave[i+1:]...)
				break
			}
		}
		var ev plimsoll.Event
		fill.Fill(&ev, o)
		var e ring.Encoder
		e.Append(&ev)
		if kept := e.Len() == 1; kept != (d.Path != "Time") {
			t.Errorf("an event with nothing but its %s is kept: %t; see isBlank in encode.go", d.Path, kept)
		}
	}
}
