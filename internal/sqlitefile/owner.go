package sqlitefile

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-dev/plimsoll"
)

const (
	// checkpointBytes is the size of the log at which a change moves it into the file.
	checkpointBytes = 32 << 20
	// maxLogBytes is the size of the log at which nothing more is written: a reader that does not
	// end keeps it.
	maxLogBytes = 256 << 20
	// vacuumPages is how many free pages GiveBack gives back, and vacuumFrom from how many on.
	vacuumPages = 512
	vacuumFrom  = 4096
	// fileMode lets the group read: gateways of another user are in it. SQLite gives it to the
	// files that it makes beside.
	fileMode = 0o640
)

// Owner is the connection that changes a file.
type Owner struct {
	*Conn

	gate   gate
	maxLog int64
}

// Own opens a file for writing, and makes it if it is not there. The directory must be there. cache
// is the memory for its pages, in bytes.
func (k Kind) Own(ctx context.Context, path string, cache int) (*Owner, error) {
	if err := k.Ended(ctx); err != nil {
		return nil, err
	}
	// The mode is set before SQLite opens the file, which gives it to the log too.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, &plimsoll.Error{
			Code: plimsoll.CodeUnavailable, Op: k.op("open", path),
			Msg: "look at the owner and the mode of the file and its directory", Err: err,
		}
	}
	if k.PageSums {
		err = k.begin(ctx, file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, k.explainFile(path, err)
	}
	c, err := k.open(path, true, cache)
	if err != nil {
		return nil, err
	}
	made, err := c.made() // before anything is changed: it refuses files of other kinds
	if err == nil {
		err = c.writes(ctx)
	}
	if err == nil && !made {
		err = c.create(ctx)
	}
	if err == nil {
		err = k.syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	g, err := k.openGate(path, true)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Owner{Conn: c, gate: g, maxLog: maxLogBytes}, nil
}

// Close gives up the file.
func (o *Owner) Close() error { return errors.Join(o.Conn.Close(), o.gate.close()) }

// Hasten lets tests reach bounds soon: the size of the log at which nothing more is written, and
// how long the owner waits for processes that pass the gate. Zero leaves one as it is.
func (o *Owner) Hasten(maxLog int64, wait time.Duration) {
	if maxLog > 0 {
		o.maxLog = maxLog
	}
	if wait > 0 {
		o.gate.wait = wait
	}
}

// made reports whether the file has the tables. It refuses a file of another kind.
func (c *Conn) made() (bool, error) {
	application, err := c.First("PRAGMA application_id")
	if err != nil {
		return false, err
	}
	version, err := c.First("PRAGMA user_version")
	if err != nil {
		return false, err
	}
	tables, err := c.First("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return false, err
	}
	switch {
	case tables[0] == int64(0) && application[0] == int64(0):
		return false, nil
	case application[0] != c.kind.Application:
		return false, plimsoll.Errorf(
			plimsoll.CodeInvalid, "%s is a database, but not %s; give another file", c.path, c.kind.article(),
		)
	case version[0] != c.kind.Format:
		format, _ := version[0].(int64)
		remedy := "run the version that wrote it"
		if format < c.kind.Format {
			remedy += ", or move it away with its -wal and -shm, and a new " + c.kind.Noun + " begins"
		}
		return false, plimsoll.Errorf(
			plimsoll.CodeUnavailable, "the %s %s has format %d, and this program knows %d; %s", c.kind.Noun, c.path,
			format, c.kind.Format, remedy,
		)
	}
	return true, nil
}

// create makes the tables, if they are not there.
func (c *Conn) create(ctx context.Context) error {
	return c.Change(ctx, func() error {
		if made, err := c.made(); made || err != nil {
			return err
		}
		if err := c.Run(ctx, c.kind.Schema); err != nil {
			return err
		}
		numbers := fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", c.kind.Application, c.kind.Format)
		if err := c.Run(ctx, numbers); err != nil {
			return err
		}
		return c.kind.Begin(c)
	})
}

// CheckLog refuses to write while the log is beyond its bound, after an attempt to empty it.
func (o *Owner) CheckLog(ctx context.Context) error {
	info, err := os.Stat(o.path + "-wal")
	if err != nil || info.Size() < o.maxLog {
		return nil // without a log nothing is too large; a real fault shows in the change
	}
	var row []driver.Value
	err = o.gate.shut(ctx, func() (err error) {
		row, err = o.First("PRAGMA wal_checkpoint(TRUNCATE)") // it waits busyTimeout for readers
		return err
	})
	held := errors.Is(err, errGateHeld)
	if err != nil && !held {
		return err
	}
	if held || row[0] != int64(0) {
		return plimsoll.Errorf(
			plimsoll.CodeExhausted, "the %[1]s's log %[2]s-wal has %[3]d bytes: a process that reads the %[1]s does not "+
				"end; find it with fuser and stop it", o.kind.Noun, o.path, info.Size(),
		)
	}
	return nil
}

// GiveBack shortens the file in a bounded step if much of it is free.
func (o *Owner) GiveBack(ctx context.Context) error {
	row, err := o.First("PRAGMA freelist_count")
	if err != nil {
		return err
	}
	if free, _ := row[0].(int64); free < vacuumFrom {
		return nil
	}
	return o.Run(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
}

// syncDirectory makes the names of new files in a directory durable.
func (k Kind) syncDirectory(directory string) error {
	d, err := os.Open(directory)
	if err != nil {
		return fmt.Errorf("open the directory of the %s: %w", k.Noun, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
