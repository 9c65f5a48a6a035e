package main

import (
	"context"
	"sync"

	"github.com/plimsoll-dev/plimsoll/client"
)

// Bounds of logs that are read before it is their turn to be printed.
const (
	logsAtOnce = 8
	aheadBytes = 256 << 10 // of one log; a larger one is read again in its turn
	chunkBytes = 128       // memory of a chunk beside its data, at most
)

// taskLog is the log of one attempt of a task.
type taskLog struct {
	task    string
	attempt int32  // 0: the last one that has begun
	prefix  string // of each line; empty: none
}

// readAhead is a log that was read before its turn.
type readAhead struct {
	chunks []client.LogChunk
	large  bool // nothing is kept of it
	err    error
}

// inTurn prints logs in their order. While one is printed, the next ones are read. Logs that cannot
// be read are added to lost. The error is that of ctx.
func (l *logs) inTurn(ctx context.Context, list []taskLog, lost *unread) error {
	lost.read += len(list)
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	// The answers in the order of the list: one in hand, the others in the channel or about to be.
	answers := make(chan chan readAhead, logsAtOnce-2)
	readers.Go(func() {
		defer close(answers)
		for i := range list {
			answer := make(chan readAhead, 1)
			readers.Go(func() { answer <- l.ahead(ctx, &list[i]) })
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
		}
	})
	next := 0
	for answer := range answers {
		err := l.printAhead(ctx, &list[next], <-answer)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			lost.add(list[next].task, err)
		}
		next++
	}
	return ctx.Err()
}

// ahead reads a log that is not printed yet.
func (l *logs) ahead(ctx context.Context, log *taskLog) (got readAhead) {
	options := l.options
	options.Attempt = log.attempt
	size := 0
	for chunk, err := range l.c.Logs(ctx, log.task, options) {
		if err != nil {
			got.err = err
			if len(got.chunks) > 0 {
				got.err = &brokenLog{err}
			}
			return got
		}
		if size += len(chunk.Data) + chunkBytes; size > aheadBytes {
			return readAhead{large: true}
		}
		got.chunks = append(got.chunks, chunk)
	}
	return got
}

// printAhead prints a log in its turn.
func (l *logs) printAhead(ctx context.Context, log *taskLog, got readAhead) error {
	if got.large {
		return l.task(ctx, log.task, log.attempt, log.prefix)
	}
	p := l.printer(log.prefix)
	defer p.flush()
	for i := range got.chunks {
		p.print(&got.chunks[i])
	}
	return got.err
}
