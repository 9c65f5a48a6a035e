package placement_test

import (
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// A request for the volumes of a machine that is on two servers is an error that names both. Once
// the machine is on one of them alone, that one is taken.
func TestVolumesOfOneMachineOnTwoServers(t *testing.T) {
	holder := func(id string, machines ...string) placement.Server {
		return plain(id, func(s *placement.Server) {
			for _, m := range machines {
				s.Instances = append(s.Instances, placement.Instance{ID: m, Owner: "alice"})
			}
		})
	}
	f := fleetWith(holder("n0", "other", "db"), holder("n1", "db", "db"), holder("n2"))
	r := asks(1, func(r *placement.Request) { r.Constraints.VolumesFrom = []string{"other", "db"} })
	_, err := placement.Default().Prepare(f, r)
	const want = "constraints.volumesFrom[1]: instance db is on two servers, n0 and n1; " +
		"give each instance an id of its own"
	wantError(t, err, want)
	if plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Errorf("its code is %s", plimsoll.CodeOf(err))
	}

	r.Constraints.VolumesFrom = []string{"other"}
	if slot := slotOf(t, f, r, 1); slot != 0 {
		t.Errorf("slot %d for volumes that are on one server, want 0", slot)
	}
	r.Constraints.VolumesFrom = []string{"db"}
	without := plain("n0")
	f.Put(0, &without)
	p := prepare(t, placement.Default(), f, r)
	if slot := newPlacer(f, 1).Place(p, 0).Slot; slot != 1 {
		t.Errorf("slot %d, want 1, which alone has it now", slot)
	}

	// A request that was made before takes none while they are two.
	distant := p.Distant()
	twin := holder("n2", "db")
	f.Put(2, &twin)
	if slot := newPlacer(f, 1).Place(p, 0).Slot; slot != -1 || p.Distant() == distant {
		t.Errorf("slot %d for a machine on two servers, want none", slot)
	}
	if got := reasons(t, f, asks(1), "volumes-from"); len(got) > 0 {
		t.Errorf("%q of a request without volumes", got)
	}
	f.Remove(1)
	if slot := newPlacer(f, 1).Place(p, 0).Slot; slot != 2 {
		t.Errorf("slot %d, want 2, which alone has it now", slot)
	}
	f.Remove(2)
	if slot := newPlacer(f, 1).Place(p, 0).Slot; slot != -1 {
		t.Errorf("slot %d, and it is gone", slot)
	}
}
