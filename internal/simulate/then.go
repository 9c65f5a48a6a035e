package simulate

// Then has the waits of a recorded workload as they were, beside those of the simulation. Tasks
// whose wait is not known are in none of them.
type Then struct {
	Placed  int     `json:"placed"`
	Waiting int     `json:"waiting"` // at the end
	Waits   Waits   `json:"waits"`
	Queues  []Group `json:"queues"` // by path
	// Both is how many tasks have a wait then and in the simulation. Difference is between the two,
	// for each of these tasks and without a sign: the error, if nothing was changed.
	Both       int   `json:"both"`
	Difference Waits `json:"difference"`
}

// thenOf returns the waits of then of a workload; nil: it was not recorded.
func thenOf(w *Workload) *Then {
	if !w.Recorded {
		return nil
	}
	t := &Then{Queues: []Group{}}
	var all []int64
	for i := range w.Arrivals {
		a := &w.Arrivals[i]
		for k := range a.Groups {
			for _, wait := range a.Groups[k].Waits {
				if wait >= 0 {
					g := group(&t.Queues, a.Queue)
					g.waits, all = append(g.waits, wait), append(all, wait)
				}
			}
		}
	}
	for _, path := range sortedKeys(w.WaitingAtEnd) {
		n := w.WaitingAtEnd[path]
		group(&t.Queues, path).Waiting = n
		t.Waiting += n
	}
	for i := range t.Queues {
		t.Queues[i].sum()
	}
	t.Placed, t.Waits = len(all), waitsOf(all)
	return t
}
