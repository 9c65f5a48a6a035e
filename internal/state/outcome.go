package state

import (
	"cmp"
	"errors"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/size"
)

// Outcome is the result of a command with a token. It is stored in the batch of the command, so a
// repetition gets the same answer, from the next leader too.
type Outcome struct {
	Token  string
	Digest uint64 // digest of the command; another command with the same token is refused
	Time   int64  // time of the command's turn, in Unix nanoseconds

	// Refused says that the command was refused; the fields below hold the error. False: the
	// command was done.
	Refused        bool
	Code           plimsoll.Code
	Op, Field, Msg string

	Policies []PolicyOutcome // changes of the applied policies
}

// outcomeRow bounds the bytes of an outcome without its policies. Each step of a turn leaves room
// for one outcome.
const outcomeRow = 2 << 10

const (
	maxOutcomeText = 128  // bytes of operation and field of a refusal
	maxOutcomeMsg  = 1024 // bytes of its message
	codeWord       = 24   // bytes of a code as it is stored, with its tag and length
)

// outcomes are the outcomes of the last minutes. Those of changes and those of refusals are each
// deleted in their order: when their time has passed, or earlier when they are over a bound.
type outcomes struct {
	byToken map[string]*Outcome
	changes outcomeList
	refused outcomeList // a quarter of the bounds: wrong calls must not push out changes
}

type outcomeList struct {
	order fifo[*Outcome]
	bytes int // sum of outcomeBytes over all
}

// listOf returns the list of an outcome.
func (t *outcomes) listOf(o *Outcome) *outcomeList {
	if o.Refused {
		return &t.refused
	}
	return &t.changes
}

func outcomeBytes(o *Outcome) int { return size.Of(o) + len(o.Token) + codeWord }

// Outcome returns the outcome of the command with a token; nil if there is none. A due outcome
// counts until it is deleted: Remember would leave it in its place.
func (s *State) Outcome(token string) *Outcome { return s.outcomes.byToken[token] }

// Remember stores the outcome of a command with a token. An outcome that is there already stays.
func (s *State) Remember(token string, digest uint64, policies []PolicyOutcome, refusal error) {
	if s.outcomes.byToken[token] != nil {
		return
	}
	o := &Outcome{Token: token, Digest: digest, Time: s.at, Policies: policies}
	var e *plimsoll.Error
	if errors.As(refusal, &e) {
		o.Refused, o.Code = true, e.Code
		o.Op, o.Field, o.Msg = cutTo(e.Op, maxOutcomeText), cutTo(e.Field, maxOutcomeText), e.Msg
		if e.Err != nil {
			o.Msg = strings.TrimPrefix(e.Msg+": "+e.Err.Error(), ": ")
		}
		o.Msg = cutTo(o.Msg, maxOutcomeMsg)
	}
	s.addOutcome(o)
	s.dirty.outcomes = append(s.dirty.outcomes, o)
	s.dirty.bytes += outcomeBytes(o)
}

// Refusal returns the error with which the command was refused; nil if it was not.
func (o *Outcome) Refusal() error {
	if !o.Refused {
		return nil
	}
	return &plimsoll.Error{Code: o.Code, Op: o.Op, Field: o.Field, Msg: o.Msg}
}

// Lasting reports whether an error refuses a command for good. After any other one, the same
// command may be done a moment later: its refusal is not remembered.
func Lasting(err error) bool {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeUnavailable, plimsoll.CodeExhausted, plimsoll.CodeInternal:
		return false
	}
	return true
}

// SubmitDigest returns the digest of all submits of a job that was taken in. Such a submit is known
// by its token and its id; a repetition may differ in everything else.
func SubmitDigest(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("submitted " + id)) // a hash takes everything
	return h.Sum64()
}

func (s *State) addOutcome(o *Outcome) {
	s.outcomes.byToken[o.Token] = o
	list := s.outcomes.listOf(o)
	list.order.push(o)
	list.bytes += outcomeBytes(o)
}

func (s *State) outcomeDue(o *Outcome) bool { return s.at >= later(o.Time, s.cfg.KeepOutcomes) }

// mustForgetOutcome reports whether an outcome is to be deleted.
func (s *State) mustForgetOutcome() bool { return s.outcomesToForget() != nil }

// outcomesToForget returns a list whose oldest outcome is to be deleted; nil: there is none.
func (s *State) outcomesToForget() *outcomeList {
	n, bytes := s.cfg.MaxOutcomes/4, s.cfg.MaxOutcomeBytes/4
	switch t := &s.outcomes; {
	case s.mustForget(&t.refused, n, bytes):
		return &t.refused
	case s.mustForget(&t.changes, s.cfg.MaxOutcomes-n, s.cfg.MaxOutcomeBytes-bytes):
		return &t.changes
	}
	return nil
}

// mustForget reports whether the oldest outcome of a list with these bounds is to go.
func (s *State) mustForget(list *outcomeList, number, bytes int) bool {
	n := list.order.len()
	return n > number || n > 0 && (list.bytes > bytes || s.outcomeDue(*list.order.front()))
}

// forgetOutcomes deletes the oldest outcomes, as far as the budget goes.
func (s *State) forgetOutcomes(budget Budget) {
	for list := s.outcomesToForget(); list != nil && !s.Over(budget); list = s.outcomesToForget() {
		o := list.order.pop()
		delete(s.outcomes.byToken, o.Token)
		list.bytes -= outcomeBytes(o)
		s.dirty.deletedOutcomes = append(s.dirty.deletedOutcomes, o.Token)
		s.dirty.bytes += len(o.Token)
	}
}

// rememberSubmit stores the outcome of the submit of a job that is forgotten within KeepOutcomes.
// While the job is known, its own token answers a repeated submit.
func (s *State) rememberSubmit(j *Job) {
	recent := j.State == plimsoll.JobExpired && s.at < later(j.Submitted, s.cfg.KeepOutcomes)
	if token := j.Spec.Token; token != "" && recent {
		s.Remember(token, SubmitDigest(j.Spec.ID), nil, nil)
	}
}

// allOutcomes returns the outcomes by time and token, which is the order of a load.
func (s *State) allOutcomes() []*Outcome {
	changes, refused := &s.outcomes.changes.order, &s.outcomes.refused.order
	list := slices.Concat(changes.items[changes.head:], refused.items[refused.head:])
	slices.SortFunc(list, func(a, b *Outcome) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Token, b.Token))
	})
	return list
}

// takeOutcomes hands out the new and the deleted outcomes.
func (s *State) takeOutcomes(c *Changes) {
	for _, o := range s.dirty.outcomes {
		c.Outcomes = append(c.Outcomes, *o)
	}
	for _, token := range s.dirty.deletedOutcomes {
		if s.outcomes.byToken[token] == nil {
			c.DeletedOutcomes = append(c.DeletedOutcomes, token)
		}
	}
}

// Outcome adds a stored outcome.
func (l *Loader) Outcome(o Outcome) { l.outcomes = append(l.outcomes, o) }

// loadOutcomes adds the stored outcomes to the state, the oldest first.
func (l *Loader) loadOutcomes(s *State) error {
	slices.SortFunc(l.outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Token, b.Token))
	})
	for i := range l.outcomes {
		o := &l.outcomes[i]
		if o.Token == "" || s.outcomes.byToken[o.Token] != nil {
			return corrupt("the outcome of a command twice, or without a token")
		}
		s.addOutcome(o)
	}
	return nil
}
