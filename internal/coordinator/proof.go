package coordinator

import (
	"context"
	"fmt"
	"sync"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// proofs proves leadership for answers that no durable batch covers. Such an answer is a read: it
// may be sent only if this process led at an instant after the command came. All that wait when a
// proof begins share it, and one proof is under way at a time.
//
// The number that waits is bounded by those who ask: four turns of the pipeline, a question for
// each worker, and the commands on events for resource managers (maxProofs).
type proofs struct {
	confirm func(ctx context.Context) error
	wake    chan struct{} // capacity 1: somebody waits

	mu struct {
		sync.Mutex
		waiting []func(error)
		ended   error // why no more proofs are made; nil: they are
	}
}

// maxProofs bounds the answers to commands on events for resource managers that wait for a proof. A
// further command is refused before it changes anything. An answer has at most 64 KiB of events,
// and a manager has one poll at a time: so all hold 8 MiB.
const maxProofs = 16_384

func newProofs(confirm func(ctx context.Context) error) *proofs {
	return &proofs{confirm: confirm, wake: make(chan struct{}, 1)}
}

// after calls then with nil once this process has proved that it led after this call, and with an
// error if it cannot. then must not block.
func (p *proofs) after(then func(error)) {
	if err := p.add(then); err != nil {
		then(err)
		return
	}
	select {
	case p.wake <- struct{}{}:
	default: // run is awake already
	}
}

func (p *proofs) add(then func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ended == nil {
		p.mu.waiting = append(p.mu.waiting, then)
	}
	return p.mu.ended
}

// full reports whether no further command may wait for a proof.
func (p *proofs) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.waiting) >= maxProofs
}

// get proves leadership for its caller.
func (p *proofs) get(ctx context.Context) error {
	done := make(chan error, 1)
	p.after(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("prove leadership: %w", ctx.Err())
	}
}

// run makes proofs until ctx ends or one fails. Then all that wait fail.
func (p *proofs) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			p.end(plimsoll.Errorf(plimsoll.CodeUnavailable, "the term has ended"))
			return nil
		case <-p.wake:
		}
		waiting := p.take()
		err := p.confirm(ctx)
		if err != nil {
			err = fmt.Errorf("prove leadership: %w", err)
		}
		for _, then := range waiting {
			then(err)
		}
		if err != nil {
			p.end(err)
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

func (p *proofs) take() []func(error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.mu.waiting
	p.mu.waiting = nil
	return waiting
}

// end fails all that wait, and all that come later.
func (p *proofs) end(err error) {
	p.mu.Lock()
	p.mu.ended = err
	waiting := p.mu.waiting
	p.mu.waiting = nil
	p.mu.Unlock()
	for _, then := range waiting {
		then(err)
	}
}

// proof is the store.Pending of a turn that changed nothing. Its replies wait for a proof of
// leadership that began after the turn, as those of another turn wait for its batch.
type proof chan error

func (p *proofs) begin() proof {
	done := make(proof, 1)
	p.after(func(err error) { done <- err })
	return done
}

// Wait implements store.Pending.
func (p proof) Wait() error { return <-p }

// proven returns a function that passes a reply on once this process has proved that it led after
// the reply was made. A reply that cannot be proved is dropped: the stream ends with the term.
func (t *term) proven(respond func(*pb.Reply)) func(*pb.Reply) {
	return func(reply *pb.Reply) {
		t.proofs.after(func(err error) {
			if err == nil {
				respond(reply)
			}
		})
	}
}
