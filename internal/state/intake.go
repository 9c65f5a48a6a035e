package state

import (
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// intake is a job that nothing speaks against.
type intake struct {
	queue    *queue.Queue
	bytes    int                   // that its specification takes in a batch
	memory   int                   // and in memory, with the rows of its groups
	prepared []*placement.Prepared // what each group asks for, made ready; who has it releases it
}

// Submit takes in a job. The turn in which that happens makes it certain: a new leader goes on
// creating its tasks. It is acknowledged when Growing says that all of them are created. A second
// submit with the same id and the same token is the first one again.
func (s *State) Submit(spec *plimsoll.JobSpec) (*Job, error) {
	in, first, err := s.examine(spec)
	if first != nil || err != nil {
		return first, err
	}
	s.lastSubmitted = max(s.at, s.lastSubmitted+1)
	j := s.addJob(spec, in.queue, s.lastSubmitted, true, in.prepared, nil)
	j.specBytes, j.memory = int32(in.bytes), in.memory
	s.askAll(j, 1)
	s.hold(j)
	s.markSpec(j)
	s.markStatus(j, true)
	s.emitApp(j, plimsoll.ChangeAdd, plimsoll.DetailNone, "", nil, "")
	s.setJobState(j, jobSubmitted)
	s.emitQueue(j.Queue, plimsoll.ChangeAdd, plimsoll.QueueApp, j.Spec.ID, nil, "")
	s.grow(j)
	return j, nil
}

// examine is all that is checked of a job before it is taken in. The order:
//
//  1. Its fields by themselves (invalid). Everything after that relies on them.
//  2. Its id (already exists; unavailable while an earlier job is being forgotten). A repeated submit
//     is answered as the first was, so that comes before all that may have changed since.
//  3. The disk has room for more state (exhausted).
//  4. Its queue is a leaf that takes jobs (invalid, conflict).
//  5. There is room for one more job (exhausted).
//  6. What it takes in a batch (invalid). The checks that follow cost with that.
//  7. Its tasks and its bytes have room beside those of other jobs, in all and in its queues
//     (exhausted). What a job keeps in memory is bounded by that, whatever it asks for.
//  8. Few of its names of resources are such that no node and no queue has (invalid).
//  9. What all jobs ask for together can be counted (exhausted).
//
// 10. Its constraints are understood (invalid). That costs most, and what it makes is kept.
//
// Beside that a gateway checks the fields, to refuse without the leader. first is the job that a
// repeated submit is for. What is refused has changed nothing.
func (s *State) examine(spec *plimsoll.JobSpec) (in intake, first *Job, err error) {
	if err := spec.Validate(); err != nil {
		return in, nil, err
	}
	if old := s.jobs[spec.ID]; old != nil {
		switch {
		case old.forgetting: // also one whose submit was never acknowledged: the new one must not be taken for it
			return in, nil, plimsoll.Errorf(
				plimsoll.CodeUnavailable, "an earlier job %q is being forgotten; try again", spec.ID,
			)
		case spec.Token != "" && spec.Token == old.Spec.Token:
			return in, old, nil
		}
		return in, nil, &plimsoll.Error{Code: plimsoll.CodeAlreadyExists, Field: "job", Msg: fmt.Sprintf(
			"%q already exists (%s); choose another id", spec.ID, old.State)}
	}
	if err := s.checkDisk(); err != nil {
		return in, nil, err
	}
	in = intake{bytes: specBytes(spec)}
	if in.queue, err = s.leafFor(spec.Queue); err != nil {
		return in, nil, err
	}
	if len(s.jobs) >= s.cfg.MaxJobs {
		return in, nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d jobs are known, as many as are possible; wait until some have ended",
			len(s.jobs),
		)
	}
	if err := s.checkSpecBytes(spec, in.bytes); err != nil {
		return in, nil, err
	}
	in.memory = memoryOf(spec, in.bytes)
	if err := s.checkHeld(in.queue, holdings{}, wants(spec, in.memory)); err != nil {
		return in, nil, err
	}
	if err := s.checkUnknown(spec); err != nil {
		return in, nil, err
	}
	if err := s.checkAsked(nil, spec); err != nil {
		return in, nil, err
	}
	in.prepared, err = s.prepareGroups(spec)
	return in, nil, err
}

func (s *State) leafFor(path string) (*queue.Queue, error) { return Leaf(s.tree, path) }

// Leaf returns the queue of a tree that a job would go to, or why it would not be taken.
func Leaf(t *queue.Tree, path string) (*queue.Queue, error) {
	q := t.Find(path)
	switch {
	case q == nil:
		return nil, plimsoll.Invalid("queue", "%q does not exist; the leaf queues are %s", path, leafNames(t))
	case !q.Leaf:
		return nil, plimsoll.Invalid(
			"queue", "%q is not a leaf and takes no jobs; the leaf queues are %s", path, leafNames(t),
		)
	case q.Draining:
		return nil, plimsoll.Errorf(
			plimsoll.CodeConflict, "queue: %q is being removed and takes no new jobs; the leaf queues are %s", path,
			leafNames(t),
		)
	}
	return q, nil
}

func leafNames(t *queue.Tree) string {
	var names []string
	t.Root.Walk(func(q *queue.Queue) {
		if q.Leaf && !q.Draining {
			names = append(names, q.Path)
		}
	})
	const most = 10
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// mostAsked is the most of one resource that all jobs may ask for together, so that no sum
// overflows.
const mostAsked = int64(1) << 62

// checkAsked reports whether what all jobs ask for together can still be counted if a specification
// is taken in, for that of old unless it is nil.
func (s *State) checkAsked(old *Job, spec *plimsoll.JobSpec) error {
	asked := map[string]int64{}
	for i := range spec.Groups {
		g := &spec.Groups[i]
		more := int64(g.Count)
		if old != nil {
			more -= int64(old.Groups[i].Spec.Count)
		}
		for _, name := range g.Resources.Names() {
			amount := more * g.Resources[name] // at most plimsoll.MaxJobAmount
			if s.askedOf(name)+asked[name] > mostAsked-amount {
				return plimsoll.Errorf(plimsoll.CodeExhausted, "groups[%d].resources.%s: all jobs together would ask for more than can be counted, %s; ask for less",
					i, name, plimsoll.FormatQuantity(name, mostAsked))
			}
			asked[name] += amount
		}
	}
	return nil
}

// askedOf returns what all jobs ask for of a resource.
func (s *State) askedOf(name string) int64 {
	if k := s.index(name); k >= 0 {
		return s.asked[k]
	}
	if u := s.names.unknown[name]; u != nil {
		return u.asked
	}
	return 0
}

// prepareGroups makes ready what the groups of a job ask for, if the chain understands it.
func (s *State) prepareGroups(spec *plimsoll.JobSpec) ([]*placement.Prepared, error) {
	prepared := make([]*placement.Prepared, 0, len(spec.Groups))
	for i := range spec.Groups {
		r := request(spec, &spec.Groups[i])
		r.Resources = s.placeable(r.Resources)
		p, err := s.cfg.Chain.Prepare(s.Fleet, r)
		if err != nil {
			for _, p := range prepared {
				p.Release()
			}
			return nil, plimsoll.Within(fmt.Sprintf("groups[%d]", i), err)
		}
		prepared = append(prepared, p)
	}
	return prepared, nil
}
