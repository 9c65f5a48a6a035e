package state

import (
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

// intake is the result of examine for a job that can be taken in.
type intake struct {
	place    place
	spec     *plimsoll.JobSpec     // the specification with the queue that the job gets
	bytes    int                   // bytes of the specification in a batch
	memory   int                   // bytes of the specification and the rows of its groups in memory
	prepared []*placement.Prepared // prepared request of each group; the owner releases it
	readable bool                  // the fields are valid, the id is free, and the disk has room
}

// Submit takes in a job. From this turn on the job is certain: a new leader goes on to create its
// tasks. The submit is acknowledged when all tasks are created, that is when Growing is false. A
// second submit with the same id and token returns the first job.
//
// With replace, an earlier job with the id that has ended gives way. Its records are deleted first,
// and until then the submit is refused with CodeUnavailable. A rejected job with the id always
// gives way. A job that is refused for good becomes such a job itself.
func (s *State) Submit(spec *plimsoll.JobSpec, replace bool) (*Job, error) {
	in, first, err := s.examine(spec, replace)
	if err != nil && s.keepsRefusal(spec, &in, err) {
		s.reject(spec, &in, err)
	}
	if first != nil || err != nil {
		return first, err
	}
	spec = in.spec
	s.takeRejected(spec.ID)
	s.lastSubmitted = max(s.at, s.lastSubmitted+1)
	j := s.addJob(spec, s.makeQueues(&in.place), s.lastSubmitted, true, in.prepared, nil)
	j.specBytes, j.memory = int32(in.bytes), in.memory
	j.UID = plimsoll.MakeUID(j.Submitted, s.revision)
	s.addAllAsked(j, 1)
	s.countUsage(j)
	s.markSpec(j)
	s.markStatus(j, true)
	s.emit(plimsoll.Event{
		Type: plimsoll.EventApp, Change: plimsoll.ChangeAdd, Object: j.Spec.ID, Head: headOf(j.UID, j.Spec),
	})
	s.setJobState(j, jobSubmitted)
	s.emitQueue(j.Queue, plimsoll.ChangeAdd, plimsoll.QueueApp, j.Spec.ID, nil, "")
	s.setLimited(j, j.account.LimitedBy())
	s.tellNewJob(j)
	s.scheduleGrowth(j)
	return j, nil
}

// headOf returns what the first event of a job tells of it.
func headOf(uid plimsoll.UID, spec *plimsoll.JobSpec) *plimsoll.JobHead {
	return &plimsoll.JobHead{UID: uid, Owner: spec.Owner, Labels: spec.Labels}
}

// examine makes all checks of a job before it is taken in. The order:
//
//  1. The fields by themselves are valid (invalid). All later checks rely on them.
//  2. The id is new (already exists; unavailable while an earlier job gives way to this one). A
//     repeated submit is answered as the first was, so this check precedes the later ones.
//  3. The disk has room for more records (exhausted).
//  4. The placement rules give a queue that takes the job and exists or can be made, and the owner
//     may submit to it (invalid, conflict, denied, exhausted).
//  5. There is room for one more job, and the archive keeps up (exhausted).
//  6. The specification fits in a batch (invalid). Its size bounds the cost of the later checks.
//  7. The tasks and bytes fit in the bounds on all jobs and in those of the queues (exhausted). The
//     memory of a job is bounded by this check.
//  8. At most a few resource names are unknown to all nodes and queues (invalid).
//  9. The sum of the requests of all jobs does not overflow (exhausted).
//
// 10. The chain understands the constraints (invalid). The check costs most. Its result is kept.
//
// A gateway checks the fields too, to refuse without the leader. first is the job of a repeated
// submit. Beside an error nothing has changed, but for an earlier job that gives way. An error of
// check 4 or a later one has in.readable set.
func (s *State) examine(spec *plimsoll.JobSpec, replace bool) (in intake, first *Job, err error) {
	if err := spec.Validate(); err != nil {
		return in, nil, err
	}
	if old := s.jobs[spec.ID]; old != nil {
		if spec.Token != "" && spec.Token == old.Spec.Token && !old.gone() {
			return in, old, nil
		}
		return in, nil, s.giveWay(old, replace)
	}
	if err := s.checkDisk(); err != nil {
		return in, nil, err
	}
	in = intake{spec: spec, bytes: specBytes(spec), readable: true}
	if in.place, err = s.placeOf(spec); err != nil {
		return in, nil, err
	}
	if spec.Queue != in.place.path {
		placed := *spec
		placed.Queue = in.place.path
		spec, in.spec, in.bytes = &placed, &placed, specBytes(&placed)
	}
	if len(s.jobs) >= s.cfg.MaxJobs {
		return in, nil, plimsoll.Errorf(
			plimsoll.CodeExhausted, "%d jobs are known, as many as are possible; wait until some have ended",
			len(s.jobs),
		)
	}
	if err := s.checkArchive(); err != nil {
		return in, nil, err
	}
	if err := s.checkSpecBytes(spec, in.bytes); err != nil {
		return in, nil, err
	}
	in.memory = memoryOf(spec, in.bytes)
	if err := s.checkUsage(in.place.queue, usage{}, fullUsage(spec, in.memory)); err != nil {
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

// mostAsked bounds the amount of one resource that all jobs ask for together, so that no sum
// overflows.
const mostAsked = int64(1) << 62

// checkAsked reports whether the requests of all jobs can still be added up with a new
// specification. If old is not nil, spec replaces its specification.
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

// askedOf returns the amount of a resource that all jobs ask for.
func (s *State) askedOf(name string) int64 {
	if k := s.index(name); k >= 0 {
		return s.asked[k]
	}
	if u := s.names.unknown[name]; u != nil {
		return u.asked
	}
	return 0
}

// prepareGroups prepares the requests of a job's groups, or returns why the chain does not
// understand one.
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
