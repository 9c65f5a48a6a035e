package coordinator

import (
	"context"
	"fmt"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/engine"
)

// deletion is a deletion of a job that the state does not know, and the archive may know.
type deletion struct {
	job   *engine.DeleteJob
	token string
	done  func(error)
}

// orDelete returns the function for the reply to a request. If the request is the deletion of a job
// that the state does not know, the function passes it on to the archiver.
func (a *archiver) orDelete(r *request) func(*pb.Reply) {
	job, ok := r.do.(*engine.DeleteJob)
	if a == nil || !ok {
		return r.respond
	}
	c, respond, token := r.command, r.respond, r.repetition.token
	return func(reply *pb.Reply) {
		if reply.GetError().GetCode() != plimsoll.CodeNotFound.String() {
			respond(reply)
			return
		}
		d := &deletion{job: job, token: token, done: func(err error) {
			respond(encodeReply(c, &engine.Reply{Err: err, Answer: engine.Done{}}, reply.GetRevision()))
		}}
		select {
		case a.deletions <- d:
		default:
			d.done(plimsoll.Errorf(
				plimsoll.CodeExhausted, "%d deletions of archived jobs are waiting; try again", maxDeletions,
			))
		}
	}
}

// nameJob gives a deletion that names only the uid of a job the id, by which the state knows jobs.
// A job that was acknowledged is in the published records until it leaves for the archive.
func (t *term) nameJob(do engine.Operation) {
	if job, is := do.(*engine.DeleteJob); is && job.ID == "" {
		job.ID, _ = t.source.Snapshot().JobOf(job.UID.String())
	}
}

// delete deletes a job in the archive and answers. An error of a change ends the session.
func (s *archiveSession) delete(ctx context.Context, d *deletion) error {
	if s.repeats.has(d.token) {
		d.done(nil)
		return nil
	}
	stored, err := s.reader.Job(ctx, d.job.ID, d.job.UID)
	if plimsoll.CodeOf(err) == plimsoll.CodeNotFound {
		name := d.job.ID
		if name == "" {
			name = d.job.UID.String()
		}
		err = plimsoll.Errorf(plimsoll.CodeNotFound, "there is no job %q", name)
	}
	if err != nil {
		d.done(err)
		return nil
	}
	if err := s.writer.Delete(ctx, s.epoch, []plimsoll.UID{stored.UID}, s.now()); err != nil {
		err = fmt.Errorf("delete job %s in the archive: %w", stored.ID, err)
		d.done(plimsoll.Errorf(plimsoll.CodeUnavailable, "%v", err))
		return err
	}
	s.step(StepDeleted)
	s.repeats.add(d.token)
	d.done(nil)
	return nil
}

// deletedRecently holds the tokens of deletions that were done, so that a repetition gets the same
// answer. It holds the last maxRepetitions.
type deletedRecently struct {
	tokens map[string]struct{}
	order  []string
	next   int // place in order of the oldest
}

func (r *deletedRecently) has(token string) bool {
	_, known := r.tokens[token]
	return known
}

func (r *deletedRecently) add(token string) {
	if token == "" || r.has(token) {
		return
	}
	if r.tokens == nil {
		r.tokens = map[string]struct{}{}
	}
	r.tokens[token] = struct{}{}
	if len(r.order) < maxRepetitions {
		r.order = append(r.order, token)
		return
	}
	delete(r.tokens, r.order[r.next])
	r.order[r.next] = token
	r.next = (r.next + 1) % maxRepetitions
}
