package sqlitefile

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
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

// Conn is one connection to a database file, for one goroutine at a time.
type Conn struct {
	kind       Kind
	path       string
	raw        driver.Conn
	statements map[string]driver.Stmt
	arguments  []driver.NamedValue // of the statement that is about to run
}

// Path returns the path of the file.
func (c *Conn) Path() string { return c.path }

// Damaged returns the error for content that SQLite reads and that is not as it was written.
func (c *Conn) Damaged(format string, values ...any) error {
	return &plimsoll.Error{
		Code: plimsoll.CodeCorrupt, Op: c.kind.op("read", c.path),
		Msg: fmt.Sprintf(format, values...) + ": " + c.kind.damagedAdvice(),
	}
}

func (c *Conn) explain(doing string, err error) error { return c.kind.explain(c.path, doing, err) }

// Open opens a file for reading; cache is the memory for its pages, in bytes.
func (k Kind) Open(path string, cache int) (*Conn, error) { return k.open(path, false, cache) }

// open opens a file. With write it makes one that is not there.
func (k Kind) open(path string, write bool, cache int) (*Conn, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the %s %s: %w", k.Noun, path, err)
	}
	query := url.Values{"mode": {"ro"}}
	if write {
		query.Set("mode", "rwc")
	}
	if k.PageSums {
		vfs, err := k.vfs()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.op("open", path), err)
		}
		query.Set("vfs", vfs)
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: absolute, RawQuery: query.Encode()}
	raw, err := (&sqlite.Driver{}).Open(name.String())
	if err != nil {
		return nil, k.explain(path, "open", err)
	}
	c := &Conn{kind: k, path: path, raw: raw, statements: map[string]driver.Stmt{}}
	settings := []string{
		fmt.Sprintf("PRAGMA busy_timeout=%d", busyTimeout.Milliseconds()),
		fmt.Sprintf("PRAGMA cache_size=-%d", cache>>10),
		"PRAGMA trusted_schema=OFF",
		"PRAGMA cell_size_check=ON", // damaged pages are found where they are read
	}
	if !write {
		settings = append(settings, "PRAGMA query_only=ON")
	}
	for _, setting := range settings {
		if err := c.Run(context.Background(), setting); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// writes sets up a connection that changes its file.
func (c *Conn) writes(ctx context.Context) error {
	for _, setting := range []string{
		fmt.Sprintf("PRAGMA page_size=%d", pageSize), // these two work on a new file only
		"PRAGMA auto_vacuum=INCREMENTAL",
		"PRAGMA journal_mode=WAL",
		"PRAGMA synchronous=FULL", // a commit is on the disk when it returns
		fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", checkpointBytes/pageSize),
		fmt.Sprintf("PRAGMA journal_size_limit=%d", checkpointBytes),
	} {
		if err := c.Run(ctx, setting); err != nil {
			return err
		}
	}
	return nil
}

// Close gives up the file.
func (c *Conn) Close() error {
	var failed []error
	for _, s := range c.statements {
		failed = append(failed, s.Close())
	}
	if err := errors.Join(append(failed, c.raw.Close())...); err != nil {
		return fmt.Errorf("close the %s %s: %w", c.kind.Noun, c.path, err)
	}
	return nil
}

// Run runs a script, or a statement that is seldom needed. It ends early with the context.
func (c *Conn) Run(ctx context.Context, script string) error {
	_, err := c.raw.(driver.ExecerContext).ExecContext(ctx, script, nil)
	return c.explain("use", err)
}

// prepare returns a kept statement with its arguments. Statements are short, so the contexts of
// calls are looked at between them: watching a context would cost a goroutine for each.
func (c *Conn) prepare(text string, values []driver.Value) (driver.Stmt, error) {
	s := c.statements[text]
	if s == nil {
		if len(c.statements) >= maxStatements {
			return nil, fmt.Errorf("%s %s: more than %d statements are kept", c.kind.Noun, c.path, maxStatements)
		}
		var err error
		if s, err = c.raw.Prepare(text); err != nil {
			return nil, c.explain("read", err)
		}
		c.statements[text] = s
	}
	c.arguments = c.arguments[:0]
	for i, v := range values {
		c.arguments = append(c.arguments, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return s, nil
}

// Exec runs a statement without rows and returns how many it changed.
func (c *Conn) Exec(text string, values ...driver.Value) (changed int64, err error) {
	s, err := c.prepare(text, values)
	if err != nil {
		return 0, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), c.arguments)
	if err != nil {
		return 0, c.explain("write", err)
	}
	changed, err = result.RowsAffected()
	return changed, c.explain("write", err)
}

// ErrStop ends the rows of a query early.
var ErrStop = errors.New("no more rows are wanted")

// Rows calls row for each row of a query. The slice is used again; the bytes in it are not.
func (c *Conn) Rows(row func([]driver.Value) error, text string, values ...driver.Value) error {
	s, err := c.prepare(text, values)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), c.arguments)
	if err != nil {
		return c.explain("read", err)
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
	case errors.Is(err, io.EOF), errors.Is(err, ErrStop):
		return c.explain("read", closed)
	default:
		return c.explain("read", err)
	}
}

// First returns the first row of a query, or nil.
func (c *Conn) First(text string, values ...driver.Value) (row []driver.Value, err error) {
	err = c.Rows(func(got []driver.Value) error {
		row = got
		return ErrStop
	}, text, values...)
	return row, err
}

// Change runs do in a transaction. Nothing else changes the file meanwhile.
func (c *Conn) Change(ctx context.Context, do func() error) error {
	err := c.Run(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		err = do()
	}
	if err == nil {
		_, err = c.Exec("COMMIT")
	}
	if err != nil { // also of BEGIN: if the context ends, the transaction may have begun all the same
		return errors.Join(err, c.rollback())
	}
	return nil
}

// View runs do in a transaction that sees the file as it is now.
func (c *Conn) View(ctx context.Context, do func() error) error {
	if err := c.kind.Ended(ctx); err != nil {
		return err
	}
	if _, err := c.Exec("BEGIN"); err != nil {
		return err
	}
	return errors.Join(do(), c.rollback())
}

// rollback ends a transaction without its changes. SQLite may have ended it by itself after an
// error.
func (c *Conn) rollback() error {
	_, err := c.Exec("ROLLBACK")
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code() == sqlite3.SQLITE_ERROR { // no transaction is active
		return nil
	}
	return err
}
