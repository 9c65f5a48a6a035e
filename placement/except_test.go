package placement_test

import (
	"fmt"
	"testing"

	"github.com/plimsoll-dev/plimsoll/placement"
)

// A request is not placed on a server that it excludes, and the explanation gives the reason. It
// goes there once the exclusion ends. Equal servers that are not named take it, in a batch of a few
// as in one of thousands.
func TestRequestKeptFromServers(t *testing.T) {
	for _, n := range []int{1, 3, 2000} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			f := fleetOf(n)
			r := asks(100, func(r *placement.Request) {
				r.Except = []placement.Exclusion{{Server: f.ID(0), Why: "its task j.g.0 was evicted from it"}}
			})
			p := prepare(t, placement.Default(), f, r)
			pl := newPlacer(f, 7)
			for range 50 {
				c := pl.Place(p, 0)
				if c.Slot == 0 {
					t.Fatal("placed on the server that it is kept from")
				}
				if n > 1 && c.Slot < 0 {
					t.Fatal("found no server, though others have room")
				}
			}
			if pl.Keeps(p, 0, 0) {
				t.Error("the server is said to take the request")
			}
			x := pl.Explain(p, 0)
			if x.Open != n || x.Eligible != n || x.FitEmpty != n || x.Fit != n-1 {
				t.Errorf("counts %+v", x)
			}
			if got := reasons(
				t, f, r, "reserved",
			); got[f.ID(0)] != "its task j.g.0 was evicted from it" || len(got) != 1 {
				t.Errorf("reasons %v", got)
			}
			if free := prepare(t, placement.Default(), f, asks(100)); !pl.Keeps(free, 0, 0) {
				t.Error("another request is kept from the server too")
			}
		})
	}
}

// A server that is reserved stays closed, with its own reason, whether a request is kept from it or
// not.
func TestReservedBeforeExclusion(t *testing.T) {
	f := fleetOf(2, func(i int, s *placement.Server) {
		if i == 0 {
			s.Reserved = "draining"
		}
	})
	r := asks(100, func(r *placement.Request) {
		r.Except = []placement.Exclusion{{Server: f.ID(0), Why: "evicted"}, {Server: f.ID(1), Why: "evicted"}}
	})
	if got := reasons(t, f, r, "reserved"); got[f.ID(0)] != "draining" || got[f.ID(1)] != "evicted" {
		t.Errorf("reasons %v", got)
	}
}
