package informer_test

import (
	"errors"
	"testing"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/informer"
)

// These tests state the behaviour of DeltaFIFO as the design describes it and as client-go has it.

func TestKeysAreQueuedOnceInOrderOfTheirFirstChange(t *testing.T) {
	q := queue(t, nil)
	// The example of the design: 1, 20, 1, 1, 3, 5, 1.
	must(t, q.Add(th("a1")), q.Add(th("t1")), q.Update(th("a2")), q.Update(th("a3")), q.Add(th("c1")),
		q.Add(th("e1")), q.Update(th("a4")))
	same(t, popAll(t, q), "a: Added 1, Updated 2, Updated 3, Updated 4", "t: Added 1", "c: Added 1", "e: Added 1")
	isEmpty(t, q)
}

func TestAKeyThatWasPoppedIsQueuedAtTheEnd(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Add(th("a1")), q.Add(th("b1")))
	same(t, []string{pop(t, q)}, "a: Added 1")
	must(t, q.Update(th("a2")))
	same(t, popAll(t, q), "b: Added 1", "a: Updated 2")
}

func TestFiveTypesOfDeltas(t *testing.T) {
	known := knows("s1")
	q := queue(t, withKnown(known))
	must(t, q.Replace(things("r1 s1"), informer.Version{}), q.Add(th("a1")), q.Update(th("u1")), q.Delete(th("r1")))
	same(t, popAll(t, q), "r: Replaced 1, Deleted 1", "s: Replaced 1", "a: Added 1", "u: Updated 1")
	q.Resync()
	same(t, popAll(t, q), "s: Sync 1")
}

func TestOnlyTwoDeletionsAtTheEndBecomeOne(t *testing.T) {
	tombstone := func(q *informer.DeltaFIFO[thing], text string) error {
		return q.DeleteKey(text[:1], th(text), true)
	}
	for _, c := range []struct {
		name   string
		change func(q *informer.DeltaFIFO[thing]) []error
		want   string
	}{
		{"two real ones leave the older", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{q.Delete(th("a2")), q.Delete(th("a3"))}
		}, "a: Added 1, Deleted 2"},
		{"the real one replaces a tombstone", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{tombstone(q, "a2"), q.Delete(th("a3"))}
		}, "a: Added 1, Deleted 3"},
		{"a tombstone does not replace the real one", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{q.Delete(th("a2")), tombstone(q, "a3")}
		}, "a: Added 1, Deleted 2"},
		{"two tombstones leave the newer", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{tombstone(q, "a2"), tombstone(q, "a3")}
		}, "a: Added 1, Deleted 3?"},
		{"three leave one", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{tombstone(q, "a2"), q.Delete(th("a3")), tombstone(q, "a4")}
		}, "a: Added 1, Deleted 3"},
		{"two that are apart stay", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{q.Delete(th("a2")), q.Add(th("a3")), q.Delete(th("a4"))}
		}, "a: Added 1, Deleted 2, Added 3, Deleted 4"},
		{"equal additions stay", func(q *informer.DeltaFIFO[thing]) []error {
			return []error{q.Add(th("a1")), q.Add(th("a1"))}
		}, "a: Added 1, Added 1, Added 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := queue(t, nil)
			must(t, q.Add(th("a1")))
			must(t, c.change(q)...)
			same(t, popAll(t, q), c.want)
			isEmpty(t, q)
		})
	}
}

func TestEqualSyncsOfALongListStay(t *testing.T) {
	q := queue(t, func(c *config) { c.EmitReplaced = false })
	must(t, q.Replace(things("a1 a1"), informer.Version{}))
	same(t, popAll(t, q), "a: Sync 1, Sync 1")
}

func TestDeleteIsIgnoredUnlessTheKeyExists(t *testing.T) {
	t.Run("without known objects only a queued key exists", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Delete(th("a1")), q.Add(th("b1")), q.Delete(th("b2")))
		same(t, popAll(t, q), "b: Added 1, Deleted 2")
	})
	t.Run("a known key exists", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1")))
		must(t, q.Delete(th("a2")), q.Delete(th("b1")))
		same(t, popAll(t, q), "a: Deleted 2")
	})
	t.Run("a key that cannot be looked up counts as known", func(t *testing.T) {
		known := knows("")
		known.failing["a"] = true
		failed := 0
		q := queue(t, func(c *config) {
			c.Known = known
			c.Events.LookupFailed = func(keys int, first error) {
				if failed += keys; !errors.Is(first, errLookup) {
					t.Error(first)
				}
			}
		})
		must(t, q.Delete(th("a2")))
		same(t, popAll(t, q), "a: Deleted 2")
		if failed != 1 || q.Stats().LookupsFailed != 1 {
			t.Errorf("%d failures told, %+v", failed, q.Stats())
		}
	})
	t.Run("an ignored deletion populates the queue", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Delete(th("a1")))
		synced(t, q, true)
	})
}

func TestDeleteKeyTakesTheNewestStateThereIs(t *testing.T) {
	q := queue(t, withKnown(knows("b7")))
	must(t, q.Add(th("a1")), q.Update(th("a2")), q.DeleteKey("a", thing{}, false))
	must(t, q.DeleteKey("b", th("b7"), true), q.DeleteKey("c", th("c1"), true))
	same(t, popAll(t, q), "a: Added 1, Updated 2, Deleted 2?", "b: Deleted 7?")
	if err := q.DeleteKey("", thing{}, false); plimsoll.CodeOf(err) != plimsoll.CodeInvalid {
		t.Error(err)
	}
}

func TestReplaceQueuesTheListAndThenTheDeletions(t *testing.T) {
	t.Run("of known keys, with their known state", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1 b1 c1 d1")))
		must(t, q.Replace(things("e2 b2"), informer.Version{}))
		same(t, popAll(t, q), "e: Replaced 2", "b: Replaced 2", "a: Deleted 1?", "c: Deleted 1?", "d: Deleted 1?")
	})
	t.Run("of queued keys, with their queued state, in their place", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1")))
		must(t, q.Update(th("a2")), q.Add(th("b1")), q.Replace(things("c1"), informer.Version{}))
		same(t, popAll(t, q), "a: Updated 2, Deleted 2?", "b: Added 1, Deleted 1?", "c: Replaced 1")
	})
	t.Run("of queued keys also without known objects", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Add(th("a1")), q.Add(th("b1")), q.Replace(things("b2"), informer.Version{}))
		same(t, popAll(t, q), "a: Added 1, Deleted 1?", "b: Added 1, Replaced 2")
	})
	t.Run("a tombstone is not wrapped in another", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1")))
		must(t, q.Replace(nil, informer.Version{}), q.Replace(nil, informer.Version{}))
		same(t, popAll(t, q), "a: Deleted 1?")
	})
	t.Run("a real deletion that is queued stays", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1")))
		must(t, q.Delete(th("a2")), q.Replace(nil, informer.Version{}))
		same(t, popAll(t, q), "a: Deleted 2")
	})
	t.Run("a known key that cannot be looked up, or has vanished, is deleted without a state", func(t *testing.T) {
		known := knows("a1 b1")
		known.failing["a"], known.vanished["b"] = true, true
		q := queue(t, withKnown(known))
		must(t, q.Replace(nil, informer.Version{}))
		got := popAll(t, q)
		same(t, got, "a: Deleted 0?", "b: Deleted 0?")
	})
	t.Run("a repeated key is queued once, with both states", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Replace(things("a1 b1 a2"), informer.Version{}))
		same(t, popAll(t, q), "a: Replaced 1, Replaced 2", "b: Replaced 1")
	})
	t.Run("without EmitReplaced as Sync", func(t *testing.T) {
		q := queue(t, func(c *config) { c.EmitReplaced, c.Known = false, knows("b1") })
		must(t, q.Replace(things("a1"), informer.Version{}))
		same(t, popAll(t, q), "a: Sync 1", "b: Deleted 1?")
	})
}

func TestResyncQueuesKnownObjectsWithoutPendingChanges(t *testing.T) {
	known := knows("a1 b1 c1 d1 e1")
	known.failing["c"], known.vanished["d"] = true, true
	q := queue(t, func(c *config) {
		c.Known = known
		c.Transform = func(t thing) (thing, error) { t.state += 5; return t, nil }
	})
	must(t, q.Update(th("b2")))
	q.Resync()
	q.Resync()
	same(t, popAll(t, q), "b: Updated 7", "a: Sync 1", "e: Sync 1")
	t.Run("and nothing without known objects", func(t *testing.T) {
		q := queue(t, nil)
		q.Resync()
		isEmpty(t, q)
	})
	t.Run("and does not populate the queue", func(t *testing.T) {
		q := queue(t, withKnown(knows("a1")))
		q.Resync()
		pop(t, q)
		synced(t, q, false)
	})
}

func TestHasSyncedWhenTheFirstListIsProcessed(t *testing.T) {
	t.Run("all keys and deletions of it", func(t *testing.T) {
		q := queue(t, withKnown(knows("c1")))
		must(t, q.Replace(things("a1 b1 a2"), informer.Version{}), q.Add(th("d1")))
		for range 3 {
			synced(t, q, false)
			pop(t, q)
		}
		synced(t, q, true)
	})
	t.Run("at once if it is empty", func(t *testing.T) {
		q := queue(t, nil)
		synced(t, q, false)
		must(t, q.Replace(nil, informer.Version{}))
		synced(t, q, true)
	})
	t.Run("at once after a first change without a list, and a later list does not count", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Add(th("a1")))
		synced(t, q, true)
		must(t, q.Replace(things("a1 b1"), informer.Version{}))
		synced(t, q, true)
	})
	t.Run("and stays so", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Replace(things("a1"), informer.Version{}))
		pop(t, q)
		must(t, q.Replace(things("a1 b1"), informer.Version{}))
		synced(t, q, true)
	})
	t.Run("and a second list before that adds nothing", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Replace(things("a1"), informer.Version{}), q.Replace(things("b1"), informer.Version{}))
		pop(t, q)
		synced(t, q, true) // b was not in the first list
	})
}

func TestInitialIsTheFirstListWithAllThatJoinsIt(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Replace(things("a1 b1"), informer.Version{}), q.Update(th("b2")), q.Add(th("c1")))
	want := map[string]bool{"a": true, "b": true, "c": false}
	for range want {
		must(t, q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
			if d.Initial != want[d.Key] {
				t.Errorf("%s: Initial is %v", d.Key, d.Initial)
			}
			return nil
		}))
	}
}

func TestAddIfNotPresentYieldsToNewerChanges(t *testing.T) {
	old := informer.Deltas[thing]{Key: "a", Changes: []informer.Delta[thing]{
		{Type: informer.Added, Object: th("a1")}, {Type: informer.Updated, Object: th("a2")},
	}}
	q := queue(t, nil)
	must(t, q.Add(th("b1")), q.AddIfNotPresent(old))
	synced(t, q, true)
	same(t, popAll(t, q), "b: Added 1", "a: Added 1, Updated 2")
	must(t, q.Update(th("a3")), q.AddIfNotPresent(old))
	same(t, popAll(t, q), "a: Updated 3")
	for field, bad := range map[string]informer.Deltas[thing]{
		"key": {Changes: old.Changes}, "changes": {Key: "a"},
		"changes[0].type": {Key: "a", Changes: []informer.Delta[thing]{{Type: 9}}},
	} {
		var e *plimsoll.Error
		if err := q.AddIfNotPresent(bad); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestTheKeyIsTakenBeforeTheTransform(t *testing.T) {
	q := queue(t, func(c *config) {
		c.Known = knows("k1")
		c.Transform = func(t thing) (thing, error) {
			return thing{"!", t.state + 1}, nil
		}
	})
	must(t, q.Add(th("a1")), q.Update(th("b1")), q.Replace(things("c1"), informer.Version{}),
		q.DeleteKey("k", th("k1"), true), q.Delete(th("k1")))
	same(t, popAll(t, q), "a: Added 2, Deleted 2?", "b: Updated 2, Deleted 2?", "c: Replaced 2", "k: Deleted 2")
}

func TestClose(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Add(th("a1")))
	q.Close()
	q.Close()
	must(t, q.Add(th("b1")))
	same(t, popAll(t, q), "a: Added 1", "b: Added 1")
	err := q.Pop(t.Context(), func(informer.Deltas[thing]) error { return nil })
	if !errors.Is(err, informer.ErrClosed) {
		t.Errorf("Pop returned %v", err)
	}
	err = q.Drain(t.Context(), func(informer.Batch[thing]) error { return nil })
	if !errors.Is(err, informer.ErrClosed) {
		t.Errorf("Drain returned %v", err)
	}
}
