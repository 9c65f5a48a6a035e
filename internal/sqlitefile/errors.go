package sqlitefile

import (
	"context"
	"errors"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/plimsoll-dev/plimsoll"
)

// Ended returns an error if the caller does not wait any more.
func (k Kind) Ended(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &plimsoll.Error{Code: plimsoll.CodeDeadline, Op: "read the " + k.Noun, Err: err}
	default:
		return &plimsoll.Error{Code: plimsoll.CodeCanceled, Op: "read the " + k.Noun, Err: err}
	}
}

func (k Kind) op(doing, path string) string { return doing + " the " + k.Noun + " " + path }

// explain returns the error of the file for a failure of SQLite, with a remedy.
func (k Kind) explain(path, doing string, err error) error {
	if err == nil {
		return nil
	}
	op := k.op(doing, path)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		code := plimsoll.CodeCanceled
		if errors.Is(err, context.DeadlineExceeded) {
			code = plimsoll.CodeDeadline
		}
		return &plimsoll.Error{Code: code, Op: op, Err: err}
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	code, message := plimsoll.CodeInternal, ""
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		code = plimsoll.CodeExhausted
		message = "its disk is full; make room on it, or give the " + k.Noun + " a smaller bound"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		code, message = plimsoll.CodeCorrupt, k.damagedAdvice()
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		code, message = plimsoll.CodeUnavailable, "it cannot be written; look at the owner and the mode of the "+
			"file and its directory, and whether its disk is mounted read-only"
	case sqlite3.SQLITE_CANTOPEN:
		code, message = plimsoll.CodeUnavailable, "the file cannot be opened; look at the owner and the mode of "+
			"the file and its directory"
	case sqlite3.SQLITE_IOERR:
		code, message = plimsoll.CodeUnavailable, "its disk fails; look at the log of the machine"
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		code, message = plimsoll.CodeUnavailable, "another process changes the file; try again"
	}
	return &plimsoll.Error{Code: code, Op: op, Msg: message, Err: err}
}

// explainFile returns the error for a failure of the operating system while a file is made. That of
// a caller who does not wait any more stays as it is.
func (k Kind) explainFile(path string, err error) error {
	switch plimsoll.CodeOf(err) {
	case plimsoll.CodeCanceled, plimsoll.CodeDeadline:
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &plimsoll.Error{
			Code: plimsoll.CodeExhausted, Op: k.op("make", path), Msg: "its disk is full; make room on it", Err: err,
		}
	}
	return &plimsoll.Error{
		Code: plimsoll.CodeUnavailable, Op: k.op("make", path), Msg: "look at its disk, and at the log of the machine",
		Err: err,
	}
}

func (k Kind) damagedAdvice() string {
	return "it is damaged; restore the file from a backup, or move it away with its -wal and -shm, and a new " +
		k.Noun + " begins"
}
