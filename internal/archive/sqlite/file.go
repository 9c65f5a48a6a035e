package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	pageSize = 8192
	// busyTimeout is how long a change waits for another process that is changing the file.
	busyTimeout = 5 * time.Second
	// maxStatements bounds the prepared statements of a connection: the texts are constants.
	maxStatements = 64
)

// conn is one connection to a database file, for one goroutine at a time.
type conn struct {
	path       string
	raw        driver.Conn
	statements map[string]driver.Stmt
	arguments  []driver.NamedValue // of the statement that is about to run
	sizes      sizes
}

// sizes are the bounds that decide how much work is done at once.
type sizes struct {
	fold   int64 // recent jobs at which their words go into the lists
	block  int   // entries of a full block of a list
	work   int   // blocks, and rows that do not fit, for one answer
	gather int   // jobs that are put into an order in memory
	log    int64 // bytes of the log at which nothing more is written: a reader that does not end keeps it
	trim   int64 // bytes of jobs after which a Trim chooses no more: their pages are freed in one transaction
	uids   int64 // of deleted jobs that are remembered; 1,000,000 take 40 MiB in the file
}

// usual has the sizes outside of tests. A block takes less than a quarter of a page: SQLite gives a
// larger row of the list further pages.
var usual = sizes{
	fold: 16384, block: 160, work: 1000, gather: 1000, log: 256 << 20, trim: 64 << 20, uids: 1_000_000,
}

// openConn opens a file. With write it makes one that is not there. cache is the memory for its
// pages, in bytes.
func openConn(path string, write bool, cache int) (*conn, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the archive %s: %w", path, err)
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: absolute, RawQuery: "mode=ro"}
	if write {
		name.RawQuery = "mode=rwc"
	}
	raw, err := (&sqlite.Driver{}).Open(name.String())
	if err != nil {
		return nil, explain(path, "open", err)
	}
	c := &conn{path: path, raw: raw, statements: map[string]driver.Stmt{}, sizes: usual}
	settings := []string{
		fmt.Sprintf("PRAGMA busy_timeout=%d", busyTimeout.Milliseconds()),
		fmt.Sprintf("PRAGMA cache_size=-%d", cache>>10),
		"PRAGMA trusted_schema=OFF",
		"PRAGMA cell_size_check=ON", // damaged pages are found where they are read
	}
	if write {
		settings = append(
			settings,
			fmt.Sprintf("PRAGMA page_size=%d", pageSize), // these two work on a new file only
			"PRAGMA auto_vacuum=INCREMENTAL",
			"PRAGMA journal_mode=WAL",
			"PRAGMA synchronous=FULL", // a commit is on the disk when it returns
			fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", checkpointBytes/pageSize),
			fmt.Sprintf("PRAGMA journal_size_limit=%d", checkpointBytes),
		)
	} else {
		settings = append(settings, "PRAGMA query_only=ON")
	}
	for _, setting := range settings {
		if err := c.run(context.Background(), setting); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *conn) close() error {
	var failed []error
	for _, s := range c.statements {
		failed = append(failed, s.Close())
	}
	if err := errors.Join(append(failed, c.raw.Close())...); err != nil {
		return fmt.Errorf("close the archive %s: %w", c.path, err)
	}
	return nil
}

// run runs a script, or a statement that is seldom needed. It ends early with the context.
func (c *conn) run(ctx context.Context, script string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(ctx, script, nil)
	return explain(c.path, "use", err)
}

// prepare returns a kept statement with its arguments. Statements are short, so the contexts of
// calls are looked at between them: watching a context would cost a goroutine for each.
func (c *conn) prepare(text string, values []driver.Value) (driver.Stmt, error) {
	s := c.statements[text]
	if s == nil {
		if len(c.statements) >= maxStatements {
			return nil, fmt.Errorf("archive %s: more than %d statements are kept", c.path, maxStatements)
		}
		var err error
		if s, err = c.raw.Prepare(text); err != nil {
			return nil, explain(c.path, "read", err)
		}
		c.statements[text] = s
	}
	c.arguments = c.arguments[:0]
	for i, v := range values {
		c.arguments = append(c.arguments, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return s, nil
}

// exec runs a statement without rows and returns how many it changed.
func (c *conn) exec(text string, values ...driver.Value) (changed int64, err error) {
	s, err := c.prepare(text, values)
	if err != nil {
		return 0, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), c.arguments)
	if err != nil {
		return 0, explain(c.path, "write", err)
	}
	changed, err = result.RowsAffected()
	return changed, explain(c.path, "write", err)
}

// errStop ends the rows of a query early.
var errStop = errors.New("no more rows are wanted")

// rows calls row for each row of a query. The slice is used again; the bytes in it are not.
func (c *conn) rows(row func([]driver.Value) error, text string, values ...driver.Value) error {
	s, err := c.prepare(text, values)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), c.arguments)
	if err != nil {
		return explain(c.path, "read", err)
	}
	got := make([]driver.Value, len(rows.Columns()))
	for {
		if err = rows.Next(got); err != nil {
			break
		}
		if err = row(got); err != nil {
			break
		}
	}
	closed := rows.Close()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errStop):
		return explain(c.path, "read", closed)
	default:
		return explain(c.path, "read", err)
	}
}

// first returns the first row of a query, or nil.
func (c *conn) first(text string, values ...driver.Value) (row []driver.Value, err error) {
	err = c.rows(func(got []driver.Value) error {
		row = got
		return errStop
	}, text, values...)
	return row, err
}

// change runs do in a transaction. Nothing else changes the file meanwhile.
func (c *conn) change(ctx context.Context, do func() error) error {
	err := c.run(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		err = do()
	}
	if err == nil {
		_, err = c.exec("COMMIT")
	}
	if err != nil { // also of BEGIN: if the context ends, the transaction may have begun all the same
		return errors.Join(err, c.rollback())
	}
	return nil
}

// view runs do in a transaction that sees the file as it is now.
func (c *conn) view(ctx context.Context, do func() error) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if _, err := c.exec("BEGIN"); err != nil {
		return err
	}
	return errors.Join(do(), c.rollback())
}

// rollback ends a transaction without its changes. SQLite may have ended it by itself after an
// error.
func (c *conn) rollback() error {
	_, err := c.exec("ROLLBACK")
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code() == sqlite3.SQLITE_ERROR { // no transaction is active
		return nil
	}
	return err
}

// ended returns an error if the caller does not wait any more.
func ended(ctx context.Context) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &plimsoll.Error{Code: plimsoll.CodeDeadline, Op: "read the archive", Err: err}
	default:
		return &plimsoll.Error{Code: plimsoll.CodeCanceled, Op: "read the archive", Err: err}
	}
}

// explain returns the error of the archive for a failure of SQLite, with a remedy.
func explain(path, doing string, err error) error {
	if err == nil {
		return nil
	}
	op := doing + " the archive " + path
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
		code, message = plimsoll.CodeExhausted, "its disk is full; make room on it, or give the archive a smaller bound"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		code, message = plimsoll.CodeCorrupt, damagedAdvice
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

const damagedAdvice = "it is damaged; restore the file from a backup, or move it away with its -wal and -shm, " +
	"and a new archive begins"

// damaged is the error for content that SQLite reads and that is not as it was written.
func damaged(path, format string, values ...any) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeCorrupt, Op: "read the archive " + path,
		Msg: fmt.Sprintf(format, values...) + ": " + damagedAdvice,
	}
}

// syncDirectory makes the names of new files in a directory durable.
func syncDirectory(directory string) error {
	d, err := os.Open(directory)
	if err != nil {
		return fmt.Errorf("open the archive's directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
