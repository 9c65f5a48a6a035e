package sqlite

import (
	"slices"
	"testing"
)

// counted is a list of every n-th entry that counts the questions.
type counted struct {
	every uint64
	asked int
}

const countedEntries = 100_000

func (l *counted) from(e entry, behind bool) (entry, bool, error) {
	l.asked++
	if behind {
		e.submitted++
	}
	e.submitted = (e.submitted + l.every - 1) / l.every * l.every
	return e, e.submitted < countedEntries, nil
}

func (l *counted) density() float64 { return 1 / float64(l.every) }

// A dense list is asked only for entries that all sparser lists have, whatever the order of the
// criteria. Each question in a dense list costs a block.
func TestDenseListsAreAskedWhereSparseOnesAgree(t *testing.T) {
	for _, order := range [][]uint64{{1, 4, 30, 100}, {100, 30, 4, 1}, {4, 100, 1, 30}} {
		lists := map[uint64]*counted{}
		var given []list
		for _, every := range order {
			lists[every] = &counted{every: every}
			given = append(given, lists[every])
		}
		both := newAll(direction{order: bySubmit}, given)
		var found []uint64
		for e, behind := (entry{}), false; ; behind = true {
			next, ok, err := both.from(e, behind)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			e = next
			found = append(found, e.submitted)
		}
		if len(found) != 334 || found[1] != 300 || !slices.IsSorted(found) { // the multiples of 300
			t.Fatalf("lists %v: found %d entries: %v", order, len(found), found[:3])
		}
		if asked := lists[1].asked; asked > 340 {
			t.Errorf("lists %v: the list of all was asked %d times for %d entries", order, asked, len(found))
		}
	}
}
