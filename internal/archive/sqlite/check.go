package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/plimsoll-dev/plimsoll/internal/sqlitefile"
)

// checkRows is how many rows are read from one moment of the file: for longer the log could not be
// moved into it.
const checkRows = 500

// Check implements archive.Writer. It reads every row of every table with its checksum, and with
// them every page that holds one.
func (w *Writer) Check(ctx context.Context) (err error) {
	if w.c == nil {
		return w.closed()
	}
	w.checking.Add(1)
	defer w.checking.Done()
	file, err := kind.Open(w.path, checkCache)
	if err != nil {
		return err //nolint:wrapcheck // it says what was done
	}
	c := &conn{file, usual}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := kind.Ended(ctx); err != nil {
		return err
	}
	if _, err := c.readState(); err != nil {
		return err
	}
	for _, table := range checks {
		if err := c.checkTable(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// tableCheck reads a table in steps.
type tableCheck struct {
	first string // query for the first rows
	after string // query for the rows behind those with a key
	key   int    // number of columns of the key, which come first
	row   func(c *conn, row []driver.Value) error
}

// checks has the tables with rows of jobs first, and then the lists and indexes that lead to them.
var checks = []tableCheck{
	{
		first: "SELECT n, uid, id, head, spec, status, tasks FROM job ORDER BY n LIMIT ?",
		after: "SELECT n, uid, id, head, spec, status, tasks FROM job WHERE n > ? ORDER BY n LIMIT ?",
		key:   1, row: checkJob,
	},
	{
		first: "SELECT n, tasks FROM chunk ORDER BY n LIMIT ?",
		after: "SELECT n, tasks FROM chunk WHERE n > ? ORDER BY n LIMIT ?",
		key:   1, row: checkSealed("tasks"),
	},
	{
		first: "SELECT uid, task, first, value FROM attempts ORDER BY uid, task, first LIMIT ?",
		after: "SELECT uid, task, first, value FROM attempts WHERE (uid, task, first) > (?, ?, ?) " +
			"ORDER BY uid, task, first LIMIT ?",
		key: 3, row: checkSealed("attempts"),
	},
	{
		first: "SELECT word, sort, first, entries FROM list ORDER BY word, sort, first LIMIT ?",
		after: "SELECT word, sort, first, entries FROM list WHERE (word, sort, first) > (?, ?, ?) " +
			"ORDER BY word, sort, first LIMIT ?",
		key: 3, row: checkSealed("a list of its index"),
	},
	{
		first: "SELECT n, jobs FROM recent ORDER BY n LIMIT ?",
		after: "SELECT n, jobs FROM recent WHERE n > ? ORDER BY n LIMIT ?",
		key:   1, row: checkSealed("recent jobs"),
	},
	{
		first: "SELECT uid, n FROM job INDEXED BY job_uid ORDER BY uid LIMIT ?",
		after: "SELECT uid, n FROM job INDEXED BY job_uid WHERE uid > ? ORDER BY uid LIMIT ?",
		key:   1, row: checkNothing,
	},
	{
		first: "SELECT id, uid FROM job INDEXED BY job_id ORDER BY id, uid LIMIT ?",
		after: "SELECT id, uid FROM job INDEXED BY job_id WHERE (id, uid) > (?, ?) ORDER BY id, uid LIMIT ?",
		key:   2, row: checkNothing,
	},
}

func (c *conn) checkTable(ctx context.Context, t tableCheck) error {
	query, values := t.first, []driver.Value{int64(checkRows)}
	for {
		if err := kind.Ended(ctx); err != nil {
			return err
		}
		var last []driver.Value
		count := 0
		err := c.Rows(func(row []driver.Value) error {
			count++
			last = append(last[:0], row[:t.key]...)
			return t.row(c, row)
		}, query, values...)
		if err != nil || count < checkRows {
			return err
		}
		query, values = t.after, append(slices.Clone(last), int64(checkRows))
	}
}

func checkJob(c *conn, got []driver.Value) error {
	uid := uidOf(got[1])
	id, _ := got[2].(string)
	var parts [4][]byte
	for i := range parts {
		parts[i], _ = got[3+i].([]byte)
	}
	r, err := decodeRow(uid, id, parts[0])
	if err != nil {
		return c.Damaged("the row of job %s", uid)
	}
	if crc32.Update(crc32.Checksum(parts[1], castagnoli), castagnoli, parts[2]) != r.body {
		return c.Damaged("the specification or status of job %s", uid)
	}
	if _, ok := sqlitefile.Unsealed(parts[3]); !ok && len(parts[3]) > 0 {
		return c.Damaged("the tasks of job %s", uid)
	}
	return nil
}

func checkSealed(part string) func(c *conn, row []driver.Value) error {
	return func(c *conn, row []driver.Value) error {
		data, _ := row[len(row)-1].([]byte)
		if _, ok := sqlitefile.Unsealed(data); !ok {
			return c.Damaged("%s, row %v", part, row[0])
		}
		return nil
	}
}

// checkNothing is for an index: it has no checksum, and SQLite has read it.
func checkNothing(*conn, []driver.Value) error { return nil }
