package coordinator

import "testing"

// wantEvents compares the counts that are not 0. Use it when the term has ended.
func wantEvents(t *testing.T, counts *eventCounts, want map[string]uint64) {
	t.Helper()
	got := map[string]uint64{
		"created": counts.created.Load(), "channeled": counts.channeled.Load(),
		"not channeled": counts.notChanneled.Load(), "stored": counts.stored.Load(),
		"not stored": counts.notStored.Load(), "processed": counts.processed.Load(),
		"collected": counts.collected.Load(),
	}
	for step, n := range got {
		if n != want[step] {
			t.Errorf("%d events were %s, want %d", n, step, want[step])
		}
	}
}

// checkEvents checks that each event of a term that failed is counted once at each step. The
// failure was at the beginning of a commit, or at the disk.
func checkEvents(t *testing.T, counts *eventCounts, atBeginning bool) {
	t.Helper()
	created, channeled, notChanneled := counts.created.Load(), counts.channeled.Load(), counts.notChanneled.Load()
	stored, notStored, processed := counts.stored.Load(), counts.notStored.Load(), counts.processed.Load()
	if created != channeled+notChanneled || channeled != stored+notStored || processed > stored {
		t.Errorf("%d events were created, %d channeled, %d not, %d stored, %d not, %d processed",
			created, channeled, notChanneled, stored, notStored, processed)
	}
	if (notChanneled > 0) != atBeginning || (notStored > 0) == atBeginning {
		t.Errorf("%d events were not channeled and %d not stored, with a failure at the beginning: %t",
			notChanneled, notStored, atBeginning)
	}
}
