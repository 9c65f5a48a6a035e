package state

import (
	"errors"
	"fmt"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/queue"
	"github.com/plimsoll-dev/plimsoll/internal/queuerule"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// place is where a submitted job goes.
type place struct {
	path string
	// queue is the leaf of the job; or, if it is to be made, the nearest queue above that exists.
	queue *queue.Queue
	made  *plimsoll.QueueConfig // the queues to be made below queue; nil: none
	bytes int                   // bytes of the stored tree with them
}

// Rules returns the placement rules and access lists of the configured tree. The value never
// changes.
func (s *State) Rules() *queuerule.Set { return s.rules }

// setRules takes over the rules and lists of a configuration that is about to be the tree's.
func (s *State) setRules(c *plimsoll.QueueConfig, rules *queuerule.Set) {
	s.rules, s.trust = rules, queuerule.Trusting(c)
}

// CheckOwners reports whether submits are possible. Limits of users and access lists hold for the
// owner that a submit states, so the operator must have said that it can be trusted.
func (s *State) CheckOwners() error { return s.checkTrust(s.trust) }

func (s *State) checkTrust(stated string) error {
	if stated == "" || s.cfg.TrustOwner {
		return nil
	}
	return plimsoll.Errorf(plimsoll.CodeDenied,
		"queues: %s, but nobody checks who a caller is; start the coordinator with --trust-owner if every caller may "+
			"be believed to be the owner of what it submits, or apply a queue file without limits of users and "+
			"access lists",
		stated)
}

// Leaf returns the leaf queue for a job by the rules, or an error that says why no queue takes the
// job. If the leaf would be made for the job, Leaf returns the nearest queue above that exists.
func Leaf(t *queue.Tree, rules *queuerule.Set, spec *plimsoll.JobSpec) (*queue.Queue, error) {
	q, _, err := choose(t, rules, spec)
	return q, err
}

func choose(t *queue.Tree, rules *queuerule.Set, spec *plimsoll.JobSpec) (
	q *queue.Queue, choice queuerule.Choice, err error,
) {
	choice, err = rules.Place(queuerule.JobOf(spec), func(path string) (queuerule.Queue, bool) {
		q := t.Find(path)
		if q == nil {
			return queuerule.Queue{}, false
		}
		stated := q.Stated()
		return queuerule.Queue{
			Leaf: q.Leaf, Draining: q.Draining, Submit: stated.SubmitAccess, Admin: stated.AdminAccess,
		}, true
	})
	if err != nil {
		return nil, choice, withLeaves(err, t)
	}
	path := choice.Path
	for q = t.Find(path); q == nil; q = t.Find(path) {
		path = path[:strings.LastIndexByte(path, '.')] // root exists
	}
	return q, choice, nil
}

// withLeaves adds the leaf queues to the refusal of a queue.
func withLeaves(err error, t *queue.Tree) error {
	var e *plimsoll.Error
	if !errors.As(err, &e) || e.Code == plimsoll.CodeDenied { // which queues there are is no business of others
		return err
	}
	more := *e
	more.Msg += "; the leaf queues are " + leafNames(t)
	return &more
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

// placeOf chooses the queue of a job, and checks that the tree has room for it if it is to be made.
func (s *State) placeOf(spec *plimsoll.JobSpec) (p place, err error) {
	if err := s.CheckOwners(); err != nil {
		return p, err
	}
	q, choice, err := choose(s.tree, s.rules, spec)
	if err != nil {
		return p, err
	}
	p = place{path: choice.Path, queue: q}
	if !choice.Make {
		return p, nil
	}
	p.made = made(q, choice.Path)
	p.bytes, err = s.checkMade(&p)
	return p, err
}

// made returns the queues that are missing on a path below a queue. The last is a leaf with the
// settings of the nearest template above.
func made(above *queue.Queue, path string) *plimsoll.QueueConfig {
	names := strings.Split(strings.TrimPrefix(path, above.Path+"."), ".")
	c := plimsoll.QueueConfig{Name: names[len(names)-1], Dynamic: true}
	for q := above; q != nil; q = q.Parent {
		if t := q.Stated().Template; t != nil {
			c.Guaranteed, c.Max, c.MaxJobs, c.Properties = t.Guaranteed, t.Max, t.MaxJobs, t.Properties
			break
		}
	}
	for i := len(names) - 2; i >= 0; i-- {
		c = plimsoll.QueueConfig{Name: names[i], Parent: true, Dynamic: true, Queues: []plimsoll.QueueConfig{c}}
	}
	return &c
}

// templateNames returns the resource names in templates. They have slots, because a queue with the
// limits of a template may come at any time.
func (s *State) templateNames() (set uint32) {
	s.tree.Root.Walk(func(q *queue.Queue) {
		if t := q.Stated().Template; t != nil {
			_, guaranteed := s.Names.Amounts(t.Guaranteed)
			_, most := s.Names.Amounts(t.Max)
			set |= guaranteed | most
		}
	})
	return set
}

// nesting bounds the bytes by which the lengths of all queues around another one grow.
const nesting = plimsoll.MaxQueueDepth * 4

// checkMade reports whether the tree has room for the queues that a job needs, and returns the
// bytes of the stored tree with them.
func (s *State) checkMade(p *place) (bytes int, err error) {
	count := strings.Count(p.path, ".") - strings.Count(p.queue.Path, ".")
	s.tree.Root.Walk(func(*queue.Queue) { count++ })
	if count > plimsoll.MaxQueues {
		return 0, plimsoll.Errorf(plimsoll.CodeExhausted,
			"queue: %s cannot be made: there are %d queues, as many as are possible; name a queue that exists, or "+
				"wait until a dynamic queue is empty", p.path, plimsoll.MaxQueues)
	}
	if s.treeBytes == 0 {
		config := s.QueueConfig()
		s.treeBytes = size.Of(&config)
	}
	if bytes = s.treeBytes + size.Of(p.made) + nesting; bytes > s.bounds.row {
		return 0, plimsoll.Errorf(plimsoll.CodeExhausted,
			"queue: %s cannot be made: the queues would take %d bytes; at most %d are possible; name a queue that "+
				"exists, or wait until a dynamic queue is empty", p.path, bytes, s.bounds.row)
	}
	return bytes, nil
}

// makeQueues makes the queues that a job needs, and returns the leaf of the job.
func (s *State) makeQueues(p *place) *queue.Queue {
	if p.made == nil {
		return p.queue
	}
	s.treeBytes = p.bytes
	s.countQueueConfig(p.bytes)
	s.tellQueues(s.tree.AddDynamic(p.queue, p.made))
	s.names.stale = true
	return s.tree.Find(p.path)
}
