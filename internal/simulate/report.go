package simulate

import (
	"cmp"
	"math"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// Report is the result of a simulation. Times are in seconds.
type Report struct {
	Policy   string   `json:"policy"`
	Workload string   `json:"workload"`
	Notes    []string `json:"notes"`
	Seed     uint64   `json:"seed"`
	Nodes    int      `json:"nodes"`
	Jobs     int      `json:"jobs"`
	Tasks    int      `json:"tasks"`
	Placed   int      `json:"placed"` // tasks that began
	Ended    int      `json:"ended"`  // tasks that ended for good
	Failed   int      `json:"failed"` // those of them that did not succeed
	Refused  int      `json:"refused"`
	// Refusals has the tasks that were refused, by reason.
	Refusals []Refusal `json:"refusals"`
	Waiting  int       `json:"waiting"` // tasks that wait at the end
	// Causes has the tasks that wait at the end, by cause, the most first. At most 20 are kept.
	Causes []Cause `json:"causes"`
	Span   float64 `json:"span"` // time of the last event

	Waits  Waits   `json:"waits"`
	Queues []Group `json:"queues"` // by path
	Owners []Group `json:"owners"` // the 50 with the most tasks, by name
	// Fairness is the mean of the series.
	Fairness      float64            `json:"fairness"`
	Utilization   map[string]float64 `json:"utilization"` // means of the series
	Fragmentation float64            `json:"fragmentation"`
	Series        Series             `json:"series"`
	Then          *Then              `json:"then,omitempty"` // of a recorded workload
}

// Refusal is a reason for which jobs were refused.
type Refusal struct {
	Reason string `json:"reason"`
	Tasks  int    `json:"tasks"`
}

// Cause is a cause for which tasks wait. An amount in it is that of the first job that waits so.
type Cause struct {
	Cause string `json:"cause"`
	Tasks int    `json:"tasks"`
}

// Group has the tasks of a queue or an owner.
type Group struct {
	Name    string `json:"name"`
	Placed  int    `json:"placed"`
	Waiting int    `json:"waiting,omitempty"` // at the end
	Waits   Waits  `json:"waits"`

	waits []int64
}

// Waits are the times from the request of a task to its first binding. Tasks that never began are
// not among them.
type Waits struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Series are values at the same distances in time, from the beginning to the last arrival.
type Series struct {
	At      []float64 `json:"at"` // seconds
	Running []int     `json:"running"`
	Waiting []int     `json:"waiting"`
	// Used has the part of each resource that is in use.
	Used map[string][]float64 `json:"used"`
	// Fragmentation is the part of the free amount that a random task of the workload cannot use
	// where it lies. It is taken of the resource that is named.
	Fragmentation   []float64 `json:"fragmentation"`
	FragmentationOf string    `json:"fragmentationOf"`
	// Fairness is Jain's index of the dominant shares of the leaves that have waiting tasks: 1 is
	// equal, 1/n is all for one of n. It is 1 if less than two leaves have waiting tasks.
	Fairness []float64 `json:"fairness"`
	// Queues has the dominant share of each leaf, of all that there is.
	Queues map[string][]float64 `json:"queues"`
}

func newReport(cfg *Config, w *Workload, leaves []string) *Report {
	r := &Report{
		Policy: cfg.Name, Workload: w.Name, Notes: append([]string{}, w.Notes...), Seed: cfg.Seed, Nodes: len(w.Nodes),
		Jobs: len(w.Arrivals), Tasks: w.tasks(), Refusals: []Refusal{}, Causes: []Cause{}, Queues: []Group{},
		Owners:      []Group{},
		Utilization: map[string]float64{},
		Series:      Series{Used: map[string][]float64{}, Queues: map[string][]float64{}},
	}
	for _, leaf := range leaves {
		r.Queues = append(r.Queues, Group{Name: leaf})
	}
	return r
}

func (r *Report) refused(tasks int, err error) {
	r.Refused += tasks
	reason := describeError(err)
	for i := range r.Refusals {
		if r.Refusals[i].Reason == reason {
			r.Refusals[i].Tasks += tasks
			return
		}
	}
	if len(r.Refusals) < maxReasons {
		r.Refusals = append(r.Refusals, Refusal{reason, tasks})
	}
}

func group(list *[]Group, name string) *Group {
	i, ok := slices.BinarySearchFunc(*list, name, func(g Group, name string) int { return cmp.Compare(g.Name, name) })
	if !ok {
		*list = slices.Insert(*list, i, Group{Name: name})
	}
	return &(*list)[i]
}

func (r *Report) began(queue, owner string, wait int64) {
	for _, g := range []*Group{group(&r.Queues, queue), group(&r.Owners, owner)} {
		g.waits = append(g.waits, wait)
	}
}

func (r *Report) ended(t *plimsoll.Task) {
	r.Ended++
	if t.Result != plimsoll.ResultSucceeded {
		r.Failed++
	}
}

// maxReasons bounds the refusals of a report, and its causes.
const maxReasons = 20

// maxOwners bounds the owners of a report.
const maxOwners = 50

// end computes the sums.
func (r *Report) end(run *runner) {
	r.Span = inSeconds(run.lastAt)
	var all []int64
	for i := range r.Queues {
		g := &r.Queues[i]
		all = append(all, g.waits...)
		g.sum()
		if q := run.state().Queue(g.Name); q != nil {
			g.Waiting = int(q.Waiting)
			r.Waiting += g.Waiting
		}
	}
	r.Waits = waitsOf(all)
	r.countWaiting(run)
	if r.Then = thenOf(run.workload); r.Then != nil {
		r.Then.Both, r.Then.Difference = len(run.differences), waitsOf(run.differences)
	}
	for i := range r.Owners {
		r.Owners[i].sum()
	}
	slices.SortStableFunc(r.Owners, func(a, b Group) int {
		return cmp.Compare(b.Placed+b.Waiting, a.Placed+a.Waiting)
	})
	r.Owners = r.Owners[:min(len(r.Owners), maxOwners)]
	slices.SortFunc(r.Owners, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Refusals, func(a, b Refusal) int {
		return cmp.Or(b.Tasks-a.Tasks, cmp.Compare(a.Reason, b.Reason))
	})
	s := &r.Series
	r.Fairness, r.Fragmentation = mean(s.Fairness), mean(s.Fragmentation)
	for _, name := range sortedKeys(s.Used) {
		r.Utilization[name] = mean(s.Used[name])
	}
}

// countWaiting counts the tasks that wait now, by owner and by cause.
func (r *Report) countWaiting(run *runner) {
	places := map[plimsoll.WaitCause]int{} // in r.Causes
	for _, id := range sortedKeys(run.jobs) {
		job := run.state().Job(id)
		if job == nil || job.State.Ended() {
			continue
		}
		for i := range job.Groups {
			g := &job.Groups[i]
			if g.Counts.Pending == 0 {
				continue
			}
			group(&r.Owners, job.Spec.Owner).Waiting += int(g.Counts.Pending)
			cause := g.Wait
			cause.Asked = 0
			if _, known := places[cause]; !known {
				places[cause] = len(r.Causes)
				r.Causes = append(r.Causes, Cause{Cause: cmp.Or(g.Wait.String(), "waits for its turn")})
			}
			r.Causes[places[cause]].Tasks += int(g.Counts.Pending)
		}
	}
	slices.SortStableFunc(r.Causes, func(a, b Cause) int { return cmp.Compare(b.Tasks, a.Tasks) })
	r.Causes = r.Causes[:min(len(r.Causes), maxReasons)]
}

func (g *Group) sum() { g.Placed, g.Waits = len(g.waits), waitsOf(g.waits) }

func waitsOf(list []int64) (w Waits) {
	if len(list) == 0 {
		return w
	}
	slices.Sort(list)
	sum := 0.0
	for _, n := range list {
		sum += float64(n)
	}
	w.Mean, w.Max = rounded(sum/float64(len(list))/float64(second)), inSeconds(list[len(list)-1])
	at := func(part float64) float64 { // the nearest rank
		return inSeconds(list[max(int(math.Ceil(part*float64(len(list))))-1, 0)])
	}
	w.P50, w.P95, w.P99 = at(0.50), at(0.95), at(0.99)
	return w
}

func inSeconds(nanos int64) float64 { return rounded(float64(nanos) / float64(second)) }

// rounded keeps milliseconds, or thousandths.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }

func mean(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return rounded(sum / float64(len(list)))
}

// sampler takes the samples of the series.
type sampler struct {
	span   int64
	next   int                  // number of the next sample
	shapes []plimsoll.Resources // requests of the workload for the scarce resource, taken evenly
	names  []string             // of resources
	scarce string               // resource of which the fragmentation is taken
}

// maxShapes is how many requests stand for all of the workload.
const maxShapes = 24

func newSampler(w *Workload, span int64) sampler {
	s := sampler{span: span, scarce: plimsoll.CPU}
	seen := map[string]bool{}
	for i := range w.Nodes {
		for _, name := range w.Nodes[i].Capacity.Names() {
			if !seen[name] {
				seen[name] = true
				s.names = append(s.names, name)
			}
		}
	}
	slices.Sort(s.names)
	for _, name := range s.names {
		if !plimsoll.StandardResource(name) && (name == GPUMilli || s.scarce == plimsoll.CPU) {
			s.scarce = name
		}
	}
	var all []plimsoll.Resources
	for i := range w.Arrivals {
		for _, g := range w.Arrivals[i].Groups {
			if g.Resources[s.scarce] > 0 {
				all = append(all, g.Resources)
			}
		}
	}
	n := min(maxShapes, len(all))
	for i := range n {
		s.shapes = append(s.shapes, all[i*len(all)/n])
	}
	return s
}

// until takes all samples before a time.
func (s *sampler) until(r *runner, t int64) {
	for s.next < Samples {
		at := s.span * int64(s.next+1) / Samples
		if at >= t {
			return
		}
		s.take(r, at)
		s.next++
	}
}

func (s *sampler) take(r *runner, at int64) {
	out, root := &r.report.Series, r.state().Tree().Root
	out.At = append(out.At, inSeconds(at))
	out.Running, out.Waiting = append(out.Running, int(root.Running)), append(out.Waiting, int(root.Waiting))
	names, total := r.state().Names, r.state().Total()
	for _, name := range s.names {
		i := names.Index(name)
		out.Used[name] = append(out.Used[name], part(root.Allocated[i], total[i]))
	}
	var hungry []float64
	for _, leaf := range r.leaves {
		q, share := r.state().Queue(leaf), 0.0
		if q != nil {
			for _, name := range s.names {
				i := names.Index(name)
				share = max(share, part(q.Allocated[i], total[i]))
			}
			if q.Waiting > 0 {
				hungry = append(hungry, share)
			}
		}
		out.Queues[leaf] = append(out.Queues[leaf], share)
	}
	out.Fairness = append(out.Fairness, jain(hungry))
	out.FragmentationOf = s.scarce
	out.Fragmentation = append(out.Fragmentation, s.fragmentation(r.state(), r.workload))
}

// fragmentation returns the part of the scarce resource that is free and that a random request
// cannot use. The other resources that it needs do not lie beside that part.
func (s *sampler) fragmentation(st *state.State, w *Workload) float64 {
	scarce := st.Names.Index(s.scarce)
	free, lost := 0.0, 0.0
	for i := range w.Nodes {
		n := st.Node(w.Nodes[i].ID)
		if n == nil || !st.Fleet.Open(n.Slot) {
			continue
		}
		left := float64(st.Fleet.Free(n.Slot, scarce))
		if left <= 0 {
			continue
		}
		free += left
		for _, shape := range s.shapes {
			fits := true
			for name, amount := range sortedPairs(shape) {
				k := st.Names.Index(name)
				fits = fits && k >= 0 && st.Fleet.Free(n.Slot, k) >= amount
			}
			if !fits {
				lost += left / float64(len(s.shapes))
			}
		}
	}
	if free == 0 {
		return 0
	}
	return rounded(lost / free)
}

// sortedPairs yields the names and amounts of resources, by name.
func sortedPairs(r plimsoll.Resources) func(yield func(string, int64) bool) {
	return func(yield func(string, int64) bool) {
		for _, name := range r.Names() {
			if !yield(name, r[name]) {
				return
			}
		}
	}
}

func part(used, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return rounded(float64(used) / float64(whole))
}

// jain returns Jain's index of fairness.
func jain(shares []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if len(shares) < 2 || squares == 0 {
		return 1
	}
	return rounded(sum * sum / (float64(len(shares)) * squares))
}
