package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/client"
)

// brokenLog is the error of a log of which a part was read.
type brokenLog struct{ error }

// Unwrap returns the cause.
func (b *brokenLog) Unwrap() error { return b.error }

// unread counts the logs or outputs that could not be read, by their cause. So a cause that
// thousands of them have in common takes one line.
type unread struct {
	what     string // logs or outputs
	read     int    // those that were asked for
	dropped  int    // by their nodes
	removed  int    // with their nodes
	failed   int
	broken   int
	firstErr [2]firstError // of failed and of broken
}

type firstError struct {
	task string
	err  error
}

func (u *unread) add(task string, err error) {
	var public *plimsoll.Error
	var broken *brokenLog
	switch {
	case errors.As(err, &broken):
		u.note(1, task, err)
		u.broken++
	case plimsoll.CodeOf(err) != plimsoll.CodeNotFound:
		u.note(0, task, err)
		u.failed++
	case errors.As(err, &public) && public.Field == "node":
		u.removed++
	default:
		u.dropped++
	}
}

func (u *unread) note(kind int, task string, err error) {
	if u.firstErr[kind].err == nil {
		u.firstErr[kind] = firstError{task, err}
	}
}

// tell prints a line for each kind of cause, and reports whether there was any. owners are tasks or
// attempts.
func (u *unread) tell(a *app, owners string) bool {
	of := func(n int) string {
		return fmt.Sprintf("%s of %s of %s %s", u.what, thousands(n), thousands(u.read), owners)
	}
	if gone := u.dropped + u.removed; gone > 0 {
		var causes []string
		if u.dropped > 0 {
			causes = append(causes, thousands(u.dropped)+" dropped by their nodes to make room or for their age")
		}
		if u.removed > 0 {
			causes = append(causes, thousands(u.removed)+" on nodes that were removed")
		}
		a.notes.printf("plimsoll: %s are gone: %s\n", of(gone), strings.Join(causes, ", "))
	}
	if first := u.firstErr[0]; first.err != nil {
		a.notes.printf("plimsoll: %s cannot be read, the first of them %s: %s\n", of(u.failed), first.task,
			a.explainError(first.err))
	}
	if first := u.firstErr[1]; first.err != nil {
		a.notes.printf("plimsoll: %s broke off, the first of them %s: %s\n", of(u.broken), first.task,
			a.explainError(first.err))
	}
	return u.dropped+u.removed+u.failed+u.broken > 0
}

// thousands prints a number with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// counted returns "1 file", "5,000 files".
func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(int(n)) + " " + noun
}

// exactTimes is the span of a time that is as exact as times of logs can be: the interval at which
// nodes note them, and the time for noting.
const exactTimes = 2500 * time.Millisecond

// logTimes remembers how exact the times of the printed lines are. Readers of several logs share
// it.
type logTimes struct {
	mu     sync.Mutex
	widest int64 // nanoseconds
}

func (t *logTimes) note(c *client.LogChunk) {
	if c.Time == 0 || c.After == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.widest = max(t.widest, c.Time-c.After)
}

// tell says it if some times are not exact.
func (t *logTimes) tell(to *output) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if widest := time.Duration(t.widest); widest > exactTimes {
		to.printf("plimsoll: nodes noted when logs had grown; some lines were written up to %v before their times\n",
			widest.Round(time.Second))
	}
}
