package ring

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-dev/plimsoll"
)

// Arbitrary bytes are an error or a chunk, never a panic. Events read from a chunk can be packed
// and read again.
func FuzzDecode(f *testing.F) {
	f.Add(pack(wave(3, 3)))
	f.Add(pack([]plimsoll.Event{
		{
			Type: 2, Change: 2, Detail: 201, Time: 9, Object: "j", Reference: "j.g.0",
			Resources: plimsoll.Resources{"cpu": 500, "memory": 1 << 30},
		},
		{
			Type: 3, Change: 2, Detail: 303, Time: 10, Object: "n", Reference: "j.g.0", Resources: plimsoll.Resources{},
			Message: "m",
		},
		{Type: 4, Change: 1, Detail: 402, Time: 8, Object: "root.batch"},
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := unpack(data)
		if err != nil {
			if plimsoll.CodeOf(err) != plimsoll.CodeCorrupt {
				t.Fatal(err)
			}
			return
		}
		events = slices.DeleteFunc(events, func(ev plimsoll.Event) bool { return isBlank(&ev) })
		again, err := unpack(pack(events))
		if diff := cmp.Diff(events, again); err != nil || diff != "" && len(events) > 0 {
			t.Fatal(err, diff)
		}
	})
}
