package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

// Defaults of ReflectorConfig.
const (
	DefaultFirstBackoff     = 200 * time.Millisecond
	DefaultLongestBackoff   = 30 * time.Second
	DefaultMaxSnapshotBytes = 4 << 30
)

// briefStream is the least life of a stream whose orderly end is followed by the next one at once.
// A source that ends its streams sooner is opened again after a pause.
const briefStream = time.Second

// Receiver takes the messages of a source, as a DeltaFIFO does. A call that fails has changed
// nothing that the next Replace does not mend.
type Receiver[T any] interface {
	// Replace takes the whole content of the source at the version.
	Replace(objects []T, at Version) error
	// Change takes one step of the source. Without objects and deletions it is a bookmark.
	Change(objects []T, deleted []Deletion[T], at Version) error
}

// ReflectorConfig holds the settings of a Reflector. Zero values stand for the defaults.
type ReflectorConfig[T any] struct {
	Source   Source[T]   // required
	Receiver Receiver[T] // required
	// Size returns the bytes of an object. Without it each object is counted as 1 KiB.
	Size func(T) int
	// MaxSnapshotBytes bounds the objects that wait for the end of a snapshot; default
	// DefaultMaxSnapshotBytes. A larger snapshot is an error, and is tried again after a pause.
	MaxSnapshotBytes int64
	// Backoff is the pause after a failure: doubled with each one in a row, half of it random.
	// Defaults DefaultFirstBackoff, DefaultLongestBackoff. A stream that lasted for Longest ends
	// the row.
	Backoff plimsoll.Backoff
	// Events are the callbacks of the reflector.
	Events ReflectorEvents
}

// ReflectorEvents are callbacks, each nil or quick: the reflector waits for them.
type ReflectorEvents struct {
	// Opened is called when a stream has begun. The zero Version asks for a snapshot.
	Opened func(from Version)
	// Listed is called when a snapshot of so many objects has been received.
	Listed func(objects int, at Version)
	// Failed is called for every error, also for one inside a stream, with the pause that follows.
	Failed func(err error, pause time.Duration)
}

// PanicError is a panic of a function that the caller supplied.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("informer: panic: %v", e.Value) }

// Reflector follows a Source and gives each message to its Receiver. After a break it resumes from
// the version that it has reached. It takes a snapshot first, and again if the source's history is
// too short, or if its Receiver refuses a message.
type Reflector[T any] struct {
	cfg  ReflectorConfig[T]
	size func(T) int
	mu   struct {
		sync.Mutex
		// from is where the next stream begins; zero asks for a snapshot.
		from Version
		// seen is the highest version received. The goroutine of Run changes it. Invariant: from is
		// zero, or equal to seen.
		seen Version
		// relist is the reason for a snapshot that was asked for and not told yet; nil if none was.
		// The stream under way is given up for it, or the next one waits.
		relist error
		// giveUp ends the stream under way; nil between streams.
		giveUp context.CancelFunc
	}
}

// NewReflector returns a Reflector. Run starts it.
func NewReflector[T any](cfg ReflectorConfig[T]) (*Reflector[T], error) {
	if cfg.Source == nil {
		return nil, plimsoll.Invalid("Source", "is not set; give the Source to follow")
	}
	if cfg.Receiver == nil {
		return nil, plimsoll.Invalid("Receiver", "is not set; give a DeltaFIFO")
	}
	if cfg.Backoff.First < 0 || cfg.Backoff.Longest < 0 {
		return nil, plimsoll.Invalid("Backoff", "is negative; give durations above zero")
	}
	if cfg.MaxSnapshotBytes < 0 {
		return nil, plimsoll.Invalid("MaxSnapshotBytes", "is negative; give a bound above zero")
	}
	if cfg.Backoff.First == 0 {
		cfg.Backoff.First = DefaultFirstBackoff
	}
	if cfg.Backoff.Longest == 0 {
		cfg.Backoff.Longest = max(DefaultLongestBackoff, cfg.Backoff.First)
	}
	if cfg.MaxSnapshotBytes == 0 {
		cfg.MaxSnapshotBytes = DefaultMaxSnapshotBytes
	}
	return &Reflector[T]{cfg: cfg, size: sizeOr(cfg.Size)}, nil
}

// Version returns the version that the reflector has reached.
func (r *Reflector[T]) Version() Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.seen
}

// Relist gives up the stream under way and takes a snapshot after a pause, also if it is called
// between two streams. The reason goes to Events.Failed. An owner calls it when what was received
// is lost behind the Receiver.
func (r *Reflector[T]) Relist(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.relist, r.mu.from = reason, Version{}
	if r.mu.giveUp != nil {
		r.mu.giveUp()
	}
}

// Run follows the source until ctx ends, and then returns nil. Between two streams it waits as
// ReflectorConfig.Backoff says.
func (r *Reflector[T]) Run(ctx context.Context) error {
	failures, tooShort := 0, false // tooShort: the stream before ended so
	for {
		began := time.Now()
		end := r.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		lasted := time.Since(began)
		if lasted >= r.cfg.Backoff.Longest {
			failures, tooShort = 0, false
		}
		again := tooShort
		tooShort = errors.Is(end.err, ErrHistoryTooShort)
		var pause time.Duration
		switch {
		case end.received && errors.Is(end.err, io.EOF) && lasted >= briefStream:
			continue // ended in order
		case tooShort && !again: // the list comes at once
		default:
			failures++
			pause = r.cfg.Backoff.Jittered(failures, rand.Int64N)
		}
		if r.cfg.Events.Failed != nil {
			r.cfg.Events.Failed(end.err, pause)
		}
		if !wait(ctx, pause) {
			return nil
		}
	}
}

// ending tells how a stream ended.
type ending struct {
	err      error
	received bool // the receiver has taken a message of it
}

// follow opens one stream and consumes it to its end.
func (r *Reflector[T]) follow(ctx context.Context) (end ending) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	from := r.mu.from
	if reason := r.mu.relist; reason != nil { // asked for between two streams
		r.mu.relist = nil
		r.mu.Unlock()
		return ending{err: reason}
	}
	r.mu.giveUp = cancel
	r.mu.Unlock()
	defer func() {
		if p := recover(); p != nil {
			end.err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		r.settle(&end)
	}()

	stream, err := r.cfg.Source.Open(ctx, from)
	if err != nil {
		return ending{err: fmt.Errorf("open the source at %s: %w", from, err)}
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = stream.Close() // the stream has ended; its own error is the one to tell
	})
	defer func() {
		if stop() {
			_ = stream.Close() // as above
			return
		}
		<-closed
	}()
	if r.cfg.Events.Opened != nil {
		r.cfg.Events.Opened(from)
	}
	return r.consume(stream, from)
}

// settle notes where the next stream begins.
func (r *Reflector[T]) settle(end *ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.giveUp = nil
	if r.mu.relist != nil {
		end.err = r.mu.relist
		r.mu.relist = nil
	}
	var refused *refusedError
	if errors.Is(end.err, ErrHistoryTooShort) || errors.As(end.err, &refused) {
		r.mu.from = Version{}
	}
}

// refusedError is a message that the reflector or its receiver did not take. A snapshot must
// follow, since the next message would not continue what the receiver has.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

func refuse(format string, args ...any) error {
	return &refusedError{fmt.Errorf(format, args...)}
}

// consume gives the messages of a stream to the receiver until the stream ends.
func (r *Reflector[T]) consume(stream Stream[T], from Version) (end ending) {
	var snapshot snapshotBuffer[T]
	snapshot.size, snapshot.bound = r.size, r.cfg.MaxSnapshotBytes
	populated := !from.IsZero()
	for {
		m, err := stream.Next()
		if err != nil {
			end.err = fmt.Errorf("follow the source: %w", err)
			return end
		}
		switch m.Kind {
		case SnapshotPart, SnapshotEnd:
			if end.err = snapshot.add(m.Objects); end.err != nil {
				return end
			}
			if m.Kind == SnapshotPart {
				continue
			}
			if end.err = r.replace(snapshot.take(), m.Version); end.err != nil {
				return end
			}
			populated = true
		case Changed, Bookmark:
			if !populated || snapshot.open {
				end.err = refuse("the source sent %s at %s before the end of a snapshot", m.Kind, m.Version)
				return end
			}
			if end.err = r.change(m); end.err != nil {
				return end
			}
		default:
			end.err = refuse("the source sent a message of the unknown kind %d", m.Kind)
			return end
		}
		end.received = true
	}
}

func (r *Reflector[T]) replace(objects []T, at Version) error {
	seen := r.mu.seen // this goroutine alone changes it
	if at.IsZero() {
		return refuse("the source's snapshot has no version")
	}
	if at.Before(seen) {
		return refuse("the source's snapshot shows %s, and %s has been seen", at, seen)
	}
	if err := take(func() error { return r.cfg.Receiver.Replace(objects, at) }); err != nil {
		return refuse("take the snapshot at %s: %w", at, err)
	}
	r.reached(at)
	if r.cfg.Events.Listed != nil {
		r.cfg.Events.Listed(len(objects), at)
	}
	return nil
}

func (r *Reflector[T]) change(m Message[T]) error {
	seen := r.mu.seen // this goroutine alone changes it
	switch {
	case m.Kind == Bookmark && m.Version == seen:
		return nil
	case !seen.Before(m.Version):
		return refuse("the source sent %s at %s, and %s has been seen", m.Kind, m.Version, seen)
	case m.Kind == Bookmark:
		m.Objects, m.Deleted = nil, nil
	}
	if err := take(func() error { return r.cfg.Receiver.Change(m.Objects, m.Deleted, m.Version) }); err != nil {
		return refuse("take the change at %s: %w", m.Version, err)
	}
	r.reached(m.Version)
	return nil
}

// take calls a Receiver. Its panic is an error, so that a snapshot follows.
func take(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return call()
}

// reached notes that the receiver has taken all up to the version. A Relist that came meanwhile
// keeps its snapshot.
func (r *Reflector[T]) reached(at Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.seen = at
	if r.mu.relist == nil {
		r.mu.from = at
	}
}

// snapshotBuffer collects the parts of a snapshot.
type snapshotBuffer[T any] struct {
	size    func(T) int
	bound   int64
	objects []T
	bytes   int64
	open    bool // parts have come, and the end has not
}

func (b *snapshotBuffer[T]) add(objects []T) error {
	b.open = true
	for _, o := range objects {
		b.bytes += int64(b.size(o))
	}
	if b.bytes > b.bound {
		return refuse("the snapshot has more than %d bytes; raise MaxSnapshotBytes or follow a part", b.bound)
	}
	if b.objects == nil {
		b.objects = objects
	} else {
		b.objects = append(b.objects, objects...)
	}
	return nil
}

func (b *snapshotBuffer[T]) take() []T {
	objects := b.objects
	b.objects, b.bytes, b.open = nil, 0, false
	return objects
}

// wait reports whether d passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
