package engine

import (
	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/internal/state"
)

// perform applies a command. A repetition has no effect, and is answered as the first command was.
func (e *Engine) perform(c *Command, out *Batch) {
	if c.Token == "" {
		c.Do.apply(e, c.ID, out)
		return
	}
	if o := e.state.Outcome(c.Token); o != nil && !e.submitted(c) {
		out.Replies = append(out.Replies, repeatedReply(c, o))
		return
	}
	answered := len(out.Replies)
	c.Do.apply(e, c.ID, out)
	if len(out.Replies) > answered { // a submit may be answered later
		e.remember(c, &out.Replies[answered])
	}
}

// submitted reports whether a command is the submit of a known job. The job answers it, even if its
// token was sent with another command since: everyone who reads the job can see the token.
func (e *Engine) submitted(c *Command) bool {
	do, ok := c.Do.(*SubmitJob)
	if !ok {
		return false
	}
	j := e.state.Job(do.Spec.ID)
	return j != nil && j.Spec.Token == c.Token
}

// remember stores the answer to a command as an outcome, in the batch of the command. A submit that
// was taken in needs no outcome: the job has its token. A refusal that may pass is not stored, so
// that a repetition can succeed.
func (e *Engine) remember(c *Command, r *Reply) {
	if _, submit := c.Do.(*SubmitJob); submit && r.Err == nil || r.Err != nil && !state.Lasting(r.Err) {
		return
	}
	policies, _ := r.Answer.([]state.PolicyOutcome) // the other answers to commands with tokens are Done
	e.state.Remember(c.Token, c.Digest, policies, r.Err)
}

// repeatedReply returns the reply to a repetition, from the outcome of the first command.
func repeatedReply(c *Command, o *state.Outcome) Reply {
	r := Reply{ID: c.ID}
	submit, isSubmit := c.Do.(*SubmitJob)
	_, isPolicies := c.Do.(*ApplyPolicies)
	same := o.Digest == c.Digest || isSubmit && o.Digest == state.SubmitDigest(submit.Spec.ID)
	switch r.Err = o.Refusal(); {
	case !same:
		r.Err = plimsoll.Invalid(
			"token", "was sent with another command before; send each command with a token of its own",
		)
	case r.Err != nil:
	case isPolicies:
		r.Answer = o.Policies
	default:
		r.Answer = Done{}
	}
	return r
}
