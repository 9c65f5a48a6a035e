package informer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/plimsoll-dev/plimsoll/informer"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

var (
	errBroken = errors.New("the consumer is broken")
	version   = func(revision uint64) informer.Version { return informer.Version{Epoch: 1, Revision: revision} }
)

func TestPopWaitsForAKey(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		q := queue(t, nil)
		var got []string
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				must(t, q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
					got = append(got, line(d)) // consumers take turns
					return nil
				}))
			})
		}
		synctest.Wait()
		must(t, q.Add(th("a1")), q.Add(th("b1")), q.Add(th("c1")))
		all.Wait()
		same(t, got, "a: Added 1", "b: Added 1", "c: Added 1")
	})
}

func TestWaitingEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(q *informer.DeltaFIFO[thing], cancel func())
		want error
	}{
		{"with the context", func(_ *informer.DeltaFIFO[thing], cancel func()) { cancel() }, context.Canceled},
		{"with Close", func(q *informer.DeltaFIFO[thing], _ func()) { q.Close() }, informer.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			testrun.Bubble(t, func(t *testing.T) {
				q := queue(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var errs [6]error
				var all sync.WaitGroup
				for i := range errs {
					all.Go(func() {
						if i%2 == 0 {
							errs[i] = q.Pop(ctx, func(informer.Deltas[thing]) error { return nil })
						} else {
							errs[i] = q.Drain(ctx, func(informer.Batch[thing]) error { return nil })
						}
					})
				}
				synctest.Wait()
				c.end(q, cancel)
				all.Wait()
				for _, err := range errs {
					if !errors.Is(err, c.want) {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestAConsumerThatLeavesDoesNotTakeTheWakeUpOfAnother(t *testing.T) {
	left := func(t *testing.T) (left bool) {
		q := queue(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		var all sync.WaitGroup
		all.Go(func() { err = q.Pop(ctx, func(informer.Deltas[thing]) error { return nil }) })
		synctest.Wait()
		var got string
		all.Go(func() { got = pop(t, q) })
		synctest.Wait()
		must(t, q.Add(th("a1"))) // wakes the first, which most often has no time left
		cancel()
		synctest.Wait()
		if err == nil { // it had time: the second waits for the next change
			must(t, q.Add(th("a1")))
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("Pop returned %v", err)
		}
		all.Wait()
		same(t, []string{got}, "a: Added 1")
		return err != nil
	}
	testrun.Bubble(t, func(t *testing.T) {
		for range 1000 {
			if left(t) {
				return
			}
		}
		t.Error("the first consumer never left")
	})
}

func TestConsumersTakeTurnsAndProducersGoOn(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Add(th("a1")), q.Add(th("b1")))
		release, order := make(chan struct{}), []string{}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				must(t, q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
					order = append(order, line(d))
					<-release
					return nil
				}))
			})
			synctest.Wait()
		}
		same(t, order, "a: Added 1")
		must(t, q.Update(th("a2"))) // the lock is free while a consumer processes
		if s := q.Stats(); s.Processing != 1 || s.Depth != 2 {
			t.Errorf("%+v", s)
		}
		close(release)
		all.Wait()
		same(t, order, "a: Added 1", "b: Added 1", "a: Updated 2")
	})
}

func TestAProcessFunctionMayCallTheQueue(t *testing.T) {
	q := queue(t, withKnown(knows("a1")))
	must(t, q.Add(th("a1")))
	must(t, q.Pop(t.Context(), func(d informer.Deltas[thing]) error {
		must(t, q.Update(th("a2")), q.AddIfNotPresent(d), q.Add(th("b1")))
		q.Resync()
		must(t, q.DeleteKey("a", thing{}, false))
		q.Compact()
		q.Stats()
		return nil
	}))
	same(t, popAll(t, q), "a: Deleted 2?", "b: Added 1")
}

func TestSyncedIsClosedAfterTheLastInitialKeyWasProcessed(t *testing.T) {
	for _, way := range []string{"Pop", "Drain"} {
		t.Run(way, func(t *testing.T) {
			q := queue(t, nil)
			must(t, q.Replace(things("a1"), informer.Version{}))
			if way == "Pop" {
				must(t, q.Pop(t.Context(), func(informer.Deltas[thing]) error { synced(t, q, false); return nil }))
			} else {
				must(t, q.Drain(t.Context(), func(b informer.Batch[thing]) error {
					if synced(t, q, false); !b.Initial || !b.Replaced {
						t.Errorf("%+v", b)
					}
					return nil
				}))
			}
			synced(t, q, true)
		})
	}
}

func TestRequeuePutsBack(t *testing.T) {
	requeue := func(q *informer.DeltaFIFO[thing], during func()) error {
		return q.Pop(t.Context(), func(informer.Deltas[thing]) error {
			during()
			return &informer.RequeueError{Err: errBroken}
		})
	}
	t.Run("behind all other keys", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Add(th("a1")), q.Update(th("a2")), q.Add(th("b1")))
		if err := requeue(q, func() {}); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		same(t, popAll(t, q), "b: Added 1", "a: Added 1, Updated 2")
	})
	t.Run("in front of newer changes, so that nobody goes back in time", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Add(th("a1")), q.Delete(th("a2")), q.Add(th("b1")))
		_ = requeue(q, func() { must(t, q.DeleteKey("a", th("a3"), true), q.Add(th("a4"))) })
		same(t, popAll(t, q), "b: Added 1", "a: Added 1, Deleted 2, Added 4")
		isEmpty(t, q)
	})
	t.Run("and the initial population is not yet processed", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Replace(things("a1"), informer.Version{}))
		_ = requeue(q, func() { must(t, q.Update(th("a2"))) })
		synced(t, q, false)
		same(t, popAll(t, q), "a: Replaced 1, Updated 2")
		synced(t, q, true)
	})
	t.Run("a batch, in front of all that came later", func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Change(things("a1 b1"), nil, version(4)))
		err := q.Drain(t.Context(), func(informer.Batch[thing]) error {
			must(t, q.Change(things("c1 b2"), nil, version(5)))
			return &informer.RequeueError{}
		})
		if err == nil {
			t.Error("Drain returned no error")
		}
		got, at := drained(t, q)
		same(t, got, "a: Updated 1", "b: Updated 2", "c: Updated 1")
		if at != version(5) {
			t.Error(at)
		}
		isEmpty(t, q)
	})
}

func TestAnyOtherErrorLosesTheChangesAndIsCounted(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Replace(things("a1 b1"), informer.Version{}))
	err := q.Pop(t.Context(), func(informer.Deltas[thing]) error { return errBroken })
	if err != errBroken { //nolint:errorlint // the error is returned as it is
		t.Error(err)
	}
	err = q.Drain(t.Context(), func(informer.Batch[thing]) error { return errBroken })
	if err != errBroken { //nolint:errorlint // the error is returned as it is
		t.Error(err)
	}
	if s := q.Stats(); s.Lost != 2 || s.Taken != 2 {
		t.Errorf("%+v", s)
	}
	synced(t, q, true) // a consumer that fails does not leave the queue unsynced for ever
	isEmpty(t, q)
}

func TestAPanicOfTheConsumerFreesTheTurn(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Replace(things("a1 b1"), informer.Version{}))
	for _, take := range []func(){
		func() { _ = q.Pop(t.Context(), func(informer.Deltas[thing]) error { panic("a") }) },
		func() { _ = q.Drain(t.Context(), func(informer.Batch[thing]) error { panic("b") }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			take()
		}()
	}
	if s := q.Stats(); s.Lost != 2 || s.Processing != 0 {
		t.Errorf("%+v", s)
	}
	synced(t, q, true)
	must(t, q.Add(th("c1")))
	same(t, popAll(t, q), "c: Added 1")
}

// While a consumer processes, its copy lags: the keys in process count as known.
func TestKeysInProcessCountAsKnownAndAsPending(t *testing.T) {
	for _, way := range []string{"Pop", "Drain"} {
		during := func(t *testing.T, q *informer.DeltaFIFO[thing], do func()) {
			t.Helper()
			if way == "Pop" {
				must(t, q.Pop(t.Context(), func(informer.Deltas[thing]) error { do(); return nil }))
			} else {
				must(t, q.Drain(t.Context(), func(informer.Batch[thing]) error { do(); return nil }))
			}
		}
		t.Run(way, func(t *testing.T) {
			t.Run("a list without the key deletes it", func(t *testing.T) {
				q := queue(t, withKnown(knows("")))
				must(t, q.Add(th("a1")))
				during(t, q, func() { must(t, q.Replace(things("b1"), informer.Version{})) })
				same(t, popAll(t, q), "b: Replaced 1", "a: Deleted 1?")
			})
			t.Run("also if its deletion is in process and may fail", func(t *testing.T) {
				q := queue(t, withKnown(knows("a1")))
				must(t, q.Delete(th("a2")))
				during(t, q, func() { must(t, q.Replace(nil, informer.Version{})) })
				same(t, popAll(t, q), "a: Deleted 1?")
			})
			t.Run("its deletion is not ignored", func(t *testing.T) {
				q := queue(t, withKnown(knows("")))
				must(t, q.Add(th("a1")))
				during(t, q, func() { must(t, q.Delete(th("a2"))) })
				same(t, popAll(t, q), "a: Deleted 2")
			})
			t.Run("Resync does not show an older state", func(t *testing.T) {
				q := queue(t, withKnown(knows("a1 b1")))
				must(t, q.Update(th("a2")))
				during(t, q, q.Resync)
				same(t, popAll(t, q), "b: Sync 1")
			})
		})
	}
}

func TestDrainTakesAllInOneStep(t *testing.T) {
	q := queue(t, nil)
	must(t, q.Add(th("a1")), q.Add(th("b1")), q.Update(th("a2")), q.Delete(th("b2")), q.Add(th("b3")),
		q.Update(th("b4")), q.Add(th("c1")), q.Delete(th("c2")))
	must(t, q.Drain(t.Context(), func(b informer.Batch[thing]) error {
		if b.Len() != 3 || q.Stats().Depth != 0 || q.Stats().Processing != 3 {
			t.Errorf("%d keys, %+v", b.Len(), q.Stats())
		}
		must(t, q.Add(th("d1")))
		same(t, batchLines(b), "a: Added 2", "b: Deleted 2, Added 4", "c: Deleted 2")
		for range b.All() {
			break
		}
		return nil
	}))
	got, _ := drained(t, q)
	same(t, got, "d: Added 1")
	isEmpty(t, q)
	if b := (informer.Batch[thing]{}); b.Len() != 0 || batchLines(b) != nil {
		t.Error("the zero batch is not empty")
	}
}

func TestDrainTellsVersions(t *testing.T) {
	testrun.Bubble(t, func(t *testing.T) {
		q := queue(t, nil)
		must(t, q.Replace(things("a1"), version(3)), q.Change(things("b1"), nil, version(5)))
		got, at := drained(t, q)
		if same(t, got, "a: Replaced 1", "b: Updated 1"); at != version(5) {
			t.Error(at)
		}
		go func() { must(t, q.Change(nil, nil, version(9))) }()
		got, at = drained(t, q) // a version alone wakes
		if same(t, got); at != version(9) {
			t.Error(at)
		}
		go func() { must(t, q.Replace(nil, informer.Version{})) }()
		must(t, q.Drain(t.Context(), func(b informer.Batch[thing]) error { // and so does an empty list
			if b.Len() != 0 || !b.Replaced || b.Version != version(9) {
				t.Errorf("%+v", b)
			}
			return nil
		}))
	})
}

func TestASlowConsumerNeverSeesHalfOfAStep(t *testing.T) {
	const steps = 2000
	q := queue(t, nil)
	var producer sync.WaitGroup
	producer.Go(func() {
		for i := range uint64(steps) {
			state := int(i)
			if i%2 == 0 {
				must(t, q.Change([]thing{{"a", state}, {"b", state}}, nil, version(i+1)))
			} else {
				must(t, q.Change([]thing{{"a", state}}, []informer.Deletion[thing]{{Key: "b"}}, version(i+1)))
			}
		}
	})
	copied := map[string]int{}
	for last := uint64(0); last < steps; {
		must(t, q.Drain(t.Context(), func(b informer.Batch[thing]) error {
			for d := range b.All() {
				if n := d.Newest(); n.Type == informer.Deleted {
					delete(copied, d.Key)
				} else {
					copied[d.Key] = n.Object.state
				}
			}
			last = b.Version.Revision
			wantB, hasB := copied["b"]
			if want := int(last - 1); copied["a"] != want || hasB != (want%2 == 0) || hasB && wantB != want {
				t.Errorf("at %v the copy is %v", b.Version, copied)
			}
			return nil
		}))
	}
	producer.Wait()
}
