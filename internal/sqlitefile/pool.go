package sqlitefile

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	maxReads    = 4       // questions that are answered at once; more wait
	readerCache = 4 << 20 // bytes of pages, for each of them
	// readTimeout bounds one answer: as long as it lasts, the log cannot be moved into the file.
	readTimeout = 2 * time.Second
)

// Pool has the connections that read a file. Any number of goroutines use it.
type Pool struct {
	kind  Kind
	path  string
	slots chan *slot // Invariant: maxReads of them are here or with a call
	once  sync.Once
	done  chan struct{}
}

// slot is a connection that is opened when it is used.
type slot struct {
	c    *Conn       // nil: not open
	file os.FileInfo // of the file that c has open
	gate gate
}

// View is one moment of a file.
type View struct {
	*Conn

	File os.FileInfo // of the file that is read
}

// Read returns a pool for a file. The file may come later, and may be replaced: each View sees the
// one that has the name then.
func (k Kind) Read(path string) *Pool {
	p := &Pool{kind: k, path: path, slots: make(chan *slot, maxReads), done: make(chan struct{})}
	for range maxReads {
		p.slots <- &slot{}
	}
	return p
}

// Path returns the path of the file.
func (p *Pool) Path() string { return p.path }

// Close waits for the calls under way and closes the file.
func (p *Pool) Close() error {
	var failed []error
	p.once.Do(func() {
		close(p.done)
		for range maxReads {
			failed = append(failed, (<-p.slots).close())
		}
	})
	return errors.Join(failed...)
}

func (s *slot) close() error {
	if s.c == nil {
		return nil
	}
	c := s.c
	s.c = nil
	return errors.Join(c.Close(), s.gate.close())
}

// View answers a question from one moment of the file that has the name now. It gives the answer up
// with CodeUnavailable after two seconds, and waits so long for its turn at most.
func (p *Pool) View(ctx context.Context, answer func(ctx context.Context, v View) error) error {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case <-p.done:
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the %s %s is closed", p.kind.Noun, p.path)
	default:
	}
	select {
	case <-p.done:
		return plimsoll.Errorf(plimsoll.CodeUnavailable, "the %s %s is closed", p.kind.Noun, p.path)
	case <-limited.Done():
		return p.tooLong(ctx, p.kind.Ended(limited))
	case s := <-p.slots:
		defer func() { p.slots <- s }()
		err := s.open(p.kind, p.path)
		if err == nil {
			err = s.gate.pass(limited)
		}
		if err == nil {
			err = s.c.View(limited, func() error { return answer(limited, View{s.c, s.file}) })
		}
		switch plimsoll.CodeOf(err) {
		case plimsoll.CodeNotFound, plimsoll.CodeInvalid, plimsoll.CodeExhausted:
		case plimsoll.CodeDeadline:
			return p.tooLong(ctx, err)
		default:
			if err != nil { // the next call opens the file again
				err = errors.Join(err, s.close())
			}
		}
		return err
	}
}

// tooLong returns the error for an answer that was not made in time: that of the caller's context,
// if it has ended.
func (p *Pool) tooLong(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return p.kind.Ended(ctx)
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: p.kind.op("read", p.path),
		Msg: "it took longer than " + readTimeout.String() + "; try again", Err: err,
	}
}

// open opens the file that has the name now, unless it is open.
func (s *slot) open(k Kind, path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.Join(plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the %s %s is not there yet; %s", k.Noun, path, k.Maker,
		), s.close())
	case err != nil:
		return errors.Join(&plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Op: k.op("read", path),
			Msg: "look at the owner and the mode of the file and its directory", Err: err,
		}, s.close())
	case s.c != nil && os.SameFile(file, s.file):
		if s.gate.file == nil {
			s.gate, err = k.openGate(path, false) // it may have come since
		}
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	c, err := k.Open(path, readerCache)
	if err != nil {
		return err
	}
	made, err := c.made()
	if err == nil && !made {
		err = plimsoll.Errorf(plimsoll.CodeUnavailable, "the %s %s is being made; try again", k.Noun, path)
	}
	if err == nil {
		err = k.sameFile(path, file)
	}
	var g gate
	if err == nil {
		g, err = k.openGate(path, false)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	s.c, s.file, s.gate = c, file, g
	return nil
}

// sameFile fails if another file has the name now. A connection to it would be taken for one to the
// file that had the name before.
func (k Kind) sameFile(path string, before os.FileInfo) error {
	now, err := os.Stat(path)
	if err == nil && os.SameFile(before, now) {
		return nil
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: k.op("read", path), Err: err,
		Msg: "it is being replaced; try again",
	}
}
